// Landmarks and names that unfold's pages lack. Classic script in the head.
addEventListener("DOMContentLoaded", () => {
  const name = (selector, label) => document.querySelector(selector)?.setAttribute("aria-label", label);
  document.getElementById("main")?.setAttribute("role", "main");
  name("#nav-sidebar-inner", "Admin");
  name("#tabs-items", "Parts of this page");
});
// Behind the scripts that run at the same event.
addEventListener("load", () => setTimeout(() => {
  document.querySelectorAll(".simplebar-content-wrapper").forEach((each, i) => {
    each.setAttribute("aria-label", each.closest("#nav-sidebar-apps") ? "Menu" : `Scrollable content ${i}`);
  });
  document.querySelectorAll("span[aria-label]:not([role])").forEach((each) => each.setAttribute("role", "img"));
}));
