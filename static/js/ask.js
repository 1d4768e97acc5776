// fetch with our headers; answers are JSON or a part of a page.

export const csrfToken = () => document.querySelector("#csrf input").value;

export class Refused extends Error {}

// Whoever signs out is on the way to the login page, and is not to be led back here from there.
let isSigningOut = false;
addEventListener("submit", ({ target }) => {
  isSigningOut = target.getAttribute("action") === "/logout/";
});

async function send(url, options = {}) {
  const headers = { "X-Requested-With": "fetch", ...options.headers };
  const response = await fetch(url, { ...options, headers, credentials: "same-origin" });
  if (response.status === 401 && !isSigningOut) {
    location.assign(`/login/?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  return response;
}

export async function getJSON(url) {
  const response = await send(url);
  if (!response.ok) throw new Refused(`The server answered ${response.status}.`);
  return response.json();
}

export async function getText(url) {
  const response = await send(url);
  if (!response.ok) throw new Refused(`The server answered ${response.status}.`);
  return response.text();
}

// Returns what the server says ({level, message, details} or {go}), also where it refuses.
export async function post(url, body) {
  const response = await send(url, {
    method: "POST",
    body,
    headers: { "X-CSRFToken": csrfToken() },
  });
  if (response.headers.get("Content-Type")?.startsWith("application/json")) return response.json();
  return { level: "error", message: `The server answered ${response.status}.` };
}
