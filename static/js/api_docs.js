// The API with Swagger UI: requests are authenticated by the session, or by the token of Authorize.
import { csrfToken } from "./ask.js";

const root = document.documentElement;
const element = document.querySelector("#api-docs");

function applyTheme() {
  root.classList.toggle("dark-mode", root.dataset.bsTheme === "dark");
}

function withCsrfToken(request) {
  if (new URL(request.url, location.href).origin === location.origin) {
    request.headers["X-CSRFToken"] = csrfToken();
  }
  return request;
}

// The headings of Swagger UI follow that of the page, and what is beside its operations has a name.
function fitIn() {
  const about = element.querySelector(".information-container");
  about?.setAttribute("role", "region");
  about?.setAttribute("aria-label", "Version and description");
  element.querySelector(".filter-container")?.setAttribute("role", "search");
  element.querySelectorAll("h3.opblock-tag").forEach((heading) => heading.setAttribute("aria-level", "2"));
}

new MutationObserver(fitIn).observe(element, { childList: true, subtree: true });
document.addEventListener("theme-changed", applyTheme);
applyTheme();
window.SwaggerUIBundle({
  domNode: element,
  url: element.dataset.schema,
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  filter: true,
  requestInterceptor: withCsrfToken,
  validatorUrl: null,
});
