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
