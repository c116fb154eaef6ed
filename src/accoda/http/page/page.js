// Shows /openapi.json: operations by group, what each takes and gives, and a curl line for each. Everything is put in as
// text, never as HTML, so nothing in the document can become a part of the page but its words.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];

function make(tag, properties, ...children) {
  const node = document.createElement(tag);
  Object.assign(node, properties);
  node.append(...children.filter((child) => child !== null));
  return node;
}

// Words with `code` in them.
function words(text) {
  const parts = String(text).split("`");
  return parts.map((part, number) => (number % 2 ? make("code", {}, part) : part));
}

function paragraphs(text) {
  return String(text).split("\n\n").filter(Boolean).map((part) => make("p", {}, ...words(part)));
}

function resolve(spec, schema) {
  while (schema && schema.$ref) schema = spec.components.schemas[schema.$ref.split("/").pop()];
  return schema || {};
}

// A type in few words: "integer 1 … 500", "one of ready, taken", "list of JobView".
function kind(spec, schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((each) => kind(spec, each)).join(" or ");
  if (schema.enum) return "one of " + schema.enum.join(", ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return "list of " + (schema.items ? kind(spec, schema.items) : "anything");
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum;
  let range = "";
  if (low !== undefined && high !== undefined && high < 1e12) range = ` ${low} … ${high}`;
  else if (low !== undefined) range = ` from ${low}`;
  return (schema.format || schema.type || "anything") + range;
}

function row(name, type, text, needed) {
  return make("tr", {},
    make("td", {}, make("code", {}, name), needed ? make("span", { className: "needed" }, " needed") : null),
    make("td", {}, type),
    make("td", {}, ...words(text || "")));
}

function fields(spec, schema) {
  const found = resolve(spec, schema);
  const needed = found.required || [];
  return Object.entries(found.properties || {}).map(([name, each]) =>
    row(name, kind(spec, each), each.description || each.anyOf?.find((one) => one.description)?.description,
      needed.includes(name)));
}

function quoted(text) {
  return "'" + text.replaceAll("'", "'\\''") + "'";
}

function curl(spec, path, method, operation) {
  let target = spec.servers[0].url.replace(/\/$/, "") + path;
  const query = [];
  for (const parameter of operation.parameters || []) {
    if (parameter.example === undefined) continue;
    const value = encodeURIComponent(parameter.example);
    if (parameter.in === "path") target = target.replace(`{${parameter.name}}`, value);
    if (parameter.in === "query") query.push(`${parameter.name}=${value}`);
  }
  const url = location.origin + target + (query.length ? "?" + query.join("&") : "");
  const lines = [`curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}${quoted(url)}`];
  if (operation.security) lines.push('-H "Authorization: Bearer $ACCODA_TOKEN"');
  const body = operation.requestBody?.content["application/json"]?.example;
  if (body !== undefined) {
    lines.push("-H 'Content-Type: application/json'");
    lines.push(`-d ${quoted(JSON.stringify(body))}`);
  }
  return lines.join(" \\\n  ");
}

function tryIt(text) {
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select it by hand";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return make("div", { className: "try" }, make("pre", { tabIndex: 0 }, make("code", {}, text)), button);
}

function section(title, rows) {
  return rows.length ? [make("h4", {}, title), make("table", {}, make("tbody", {}, ...rows))] : [];
}

function reply(spec, status, response) {
  const [type, content] = Object.entries(response.content || {})[0] || [];
  const example = content?.example ?? Object.values(content?.examples || {})[0]?.value;
  const rows = content?.schema && status < 300 ? fields(spec, content.schema) : [];
  const head = make("summary", {}, make("code", {}, status), " ", ...words(response.description));
  if (example === undefined && !rows.length) return make("p", {}, ...head.childNodes);
  const shown = typeof example === "string" ? example : JSON.stringify(example, null, 2);
  return make("details", {}, head,
    example === undefined ? null : make("pre", { tabIndex: 0 }, make("code", {}, shown)),
    ...section(`Fields (${type})`, rows));
}

function article(spec, path, method, operation) {
  const parameters = (operation.parameters || []).map((each) =>
    row(each.name, `${each.in}, ${kind(spec, each.schema)}`, each.description, each.required));
  const schema = operation.requestBody?.content["application/json"]?.schema;
  return make("article", { id: operation.operationId },
    make("h3", {},
      make("span", { className: `method ${method}` }, method.toUpperCase()),
      make("a", { href: `#${operation.operationId}` }, make("code", {}, path)),
      make("span", { className: "words" }, operation.summary)),
    make("div", {},
      ...paragraphs(operation.description || ""),
      tryIt(curl(spec, path, method, operation)),
      ...section("Parameters", parameters),
      ...section("Body", schema ? fields(spec, schema) : []),
      make("h4", {}, "Answers"),
      ...Object.entries(operation.responses).map(([status, each]) => reply(spec, status, each))));
}

function entries(spec) {
  return Object.entries(spec.paths).flatMap(([path, methods]) =>
    Object.keys(methods).filter((method) => METHODS.includes(method)).map((method) => ({ path, method, operation: methods[method] })));
}

function problems(spec) {
  const rows = Object.entries(spec["x-problems"] || {}).map(([name, each]) => {
    const made = row(name, String(each.status), `${each.title}: ${each.description}`);
    made.id = name;
    return made;
  });
  return [make("h2", { id: "problems" }, "Problems"), ...section("type, status, meaning", rows)];
}

function show(spec) {
  const main = document.getElementById("main");
  const contents = document.getElementById("contents");
  const all = entries(spec);
  document.getElementById("version").textContent = spec.info.version;
  main.append(...paragraphs(spec.info.description));
  for (const tag of spec.tags) {
    const mine = all.filter((each) => each.operation.tags.includes(tag.name));
    const list = make("ul", {}, ...mine.map(({ path, method, operation }) => make("li", {},
      make("a", { href: `#${operation.operationId}`, title: `${method.toUpperCase()} ${path}` }, operation.summary))));
    contents.append(make("h2", {}, tag.name), list);
    main.append(make("h2", {}, tag.name),
      ...mine.map(({ path, method, operation }) => article(spec, path, method, operation)));
  }
  contents.append(make("h2", {}, make("a", { href: "#problems" }, "Problems")));
  main.append(...problems(spec));
  document.getElementById("status").remove();
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

// Hides what has none of the words; headings go with the last of theirs.
function find(text) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (node) => wanted.every((word) => node.textContent.toLowerCase().includes(word));
  for (const each of document.querySelectorAll("article")) {
    each.hidden = !fits(each.querySelector("h3")) && !fits(each);
    document.querySelector(`nav a[href="#${each.id}"]`).parentElement.hidden = each.hidden;
  }
}

document.getElementById("find").addEventListener("input", (event) => find(event.target.value));
fetch("openapi.json") // beside this page, wherever the service is mounted
  .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`the answer was ${answer.status}`))))
  .then(show)
  .catch((error) => { document.getElementById("status").textContent = `/openapi.json cannot be shown: ${error.message}`; });
