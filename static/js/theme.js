// Light or dark before the first paint. Classic script in the head, so that nothing flashes.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => localStorage.getItem("theme") || "auto";

  function apply() {
    const theme = chosen() === "auto" ? (dark.matches ? "dark" : "light") : chosen();
    if (document.documentElement.dataset.bsTheme === theme) return;
    document.documentElement.dataset.bsTheme = theme;
    document.dispatchEvent(new CustomEvent("theme-changed"));
  }

  window.trainopsTheme = {
    chosen,
    choose(theme) {
      localStorage.setItem("theme", theme);
      apply();
    },
  };
  dark.addEventListener("change", apply);
  addEventListener("storage", (event) => event.key === "theme" && apply());
  apply();
})();
