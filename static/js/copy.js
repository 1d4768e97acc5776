// Buttons that copy `data-copy-text`, or the text of the element that `data-copy` selects.

const textOf = ({ copy, copyText }) => copyText ?? document.querySelector(copy).textContent.trim();

async function copy(button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(textOf(button.dataset));
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied"; // only pages over HTTPS or on this host may
  }
  setTimeout(() => (button.textContent = label), 1500);
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-copy]");
  if (button) copy(button);
});
