"""The shop's own login: a form, and a signed cookie."""

from typing import Annotated
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from accoda.asgi import Access

PASSWORDS = {"anna": "a-cup-of-tea", "ben": "two-cups", "carla": "three-cups"}
STAFF = {"anna": Access("full", "anna"), "carla": Access("read", "carla")}

router = APIRouter()


def current_user(request: Request) -> str:
    """Who is logged in."""
    user = request.session.get("user")
    if user is None:
        raise HTTPException(401, "log in at /login")
    return str(user)


User = Annotated[str, Depends(current_user)]


def staff(request: Request) -> Access | Response | None:
    """Who may see the jobs: the staff. Others have to log in first."""
    access = STAFF.get(request.session.get("user", ""))
    if access is None and request.method == "GET":
        # Where the form is, also if a proxy put the shop under a path of its own.
        return RedirectResponse(f"{request.url_for('login_page').path}?next={quote(request.url.path)}", 303)
    return access


@router.get("/login")
async def login_page() -> Response:
    """A form, which is sent to this same address."""
    return HTMLResponse(
        "<!doctype html><title>The shop</title><h1>The shop</h1><form method=post>"
        "<p><label>Name <input name=user></label> <label>Password <input name=password type=password></label> "
        "<button>Log in</button></form>"
    )


@router.post("/login")
async def log_in(request: Request, next: str = "/docs") -> Response:
    """The form was sent."""
    form = dict(parse_qsl((await request.body()).decode()))
    if PASSWORDS.get(form.get("user", "")) != form.get("password"):
        raise HTTPException(401, "that is not the password")
    request.session["user"] = form["user"]
    # A path of ours, and not an address of somebody else's.
    return RedirectResponse(next if next.startswith("/") and next[1:2] not in ("/", "\\") else "/docs", 303)
