/* Before the first paint: the reader's choice of light or dark, if there is one. */
(function () {
  try {
    var theme = localStorage.getItem("accoda-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch (e) { /* no storage: the system's choice */ }
})();
