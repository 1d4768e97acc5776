// The recipes of a new operation: a search over them, and one line once one is chosen.

export function startPicker(picker) {
  const search = picker.querySelector("[data-recipe-search]");
  const recipes = [...picker.querySelectorAll(".recipe")];
  const found = () => recipes.filter((each) => !each.hidden);

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const each of recipes) {
      const text = `${each.textContent} ${each.dataset.search}`.toLowerCase();
      each.hidden = !words.every((word) => text.includes(word));
    }
    for (const group of picker.querySelectorAll("section")) group.hidden = !group.querySelector(".recipe:not([hidden])");
    picker.querySelector("[data-no-recipe]").hidden = found().length > 0;
  }

  function close() {
    picker.open = false;
    picker.querySelector("summary").focus();
  }

  search.addEventListener("input", filter);
  picker.addEventListener("toggle", () => picker.open && search.focus());
  picker.addEventListener("change", ({ target }) => {
    if (target.name !== "recipe") return;
    picker.querySelector("[data-chosen]").textContent = target.parentElement.querySelector("strong").textContent;
    picker.querySelector("[data-chosen-text]").textContent = target.parentElement.querySelector(".sub").textContent;
  });
  // An arrow key in the list also clicks; it leaves the list open, so that the next one is read.
  picker.addEventListener("click", (event) => event.target.closest(".recipe") && event.detail > 0 && close());
  picker.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return close();
    if (event.key === "Enter" && event.target.matches("input")) {
      event.preventDefault();
      const chosen = event.target === search ? found()[0]?.querySelector("input") : event.target;
      if (!chosen) return;
      chosen.click();
      close();
    }
    if (event.key === "ArrowDown" && event.target === search) {
      event.preventDefault();
      found()[0]?.querySelector("input").focus();
    }
  });
}
