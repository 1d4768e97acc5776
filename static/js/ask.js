// fetch with our headers; answers are JSON or a part of a page.

export const csrfToken = () => document.querySelector("#csrf input").value;

export class Refused extends Error {}

// The server says that what the page is about does not exist. Any other 404 is that of a proxy, or of a
// server that does not know the address yet.
export class Gone extends Refused {}

// Whoever signs out is on the way to the login page, and is not to be led back here from there.
let isSigningOut = false;
addEventListener("submit", ({ target }) => {
  isSigningOut = target.getAttribute("action") === "/logout/";
});

const isJSON = (response) => Boolean(response.headers.get("Content-Type")?.startsWith("application/json"));

async function get(url) {
  const response = await send(url);
  if (response.ok) return response;
  const answer = response.status === 404 && isJSON(response) ? await response.json().catch(() => null) : null;
  const Problem = answer?.gone === true ? Gone : Refused;
  throw new Problem(`The server answered ${response.status}.`);
}

async function send(url, options = {}) {
  const headers = { "X-Requested-With": "fetch", ...options.headers };
  const response = await fetch(url, { ...options, headers, credentials: "same-origin" });
  if (response.status === 401 && !isSigningOut) {
    location.assign(`/login/?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  return response;
}

export const getJSON = async (url) => (await get(url)).json();

export const getText = async (url) => (await get(url)).text();

// Returns what the server says ({level, message, details} or {go}), also where it refuses.
export async function post(url, body) {
  const response = await send(url, {
    method: "POST",
    body,
    headers: { "X-CSRFToken": csrfToken() },
  });
  if (isJSON(response)) return response.json();
  return { level: "error", message: `The server answered ${response.status}.` };
}
