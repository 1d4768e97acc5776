// The end of the log. Follows while nobody scrolls up; keeps the newest part only.

const MAX_CHARACTERS = 200_000;

export function startLog(element, follow, empty) {
  let attempt = 0;
  const toEnd = () => (element.scrollTop = element.scrollHeight);
  const isAtEnd = () => element.scrollHeight - element.scrollTop - element.clientHeight < 24;

  follow.addEventListener("change", () => follow.checked && toEnd());
  element.addEventListener("scroll", () => (follow.checked = isAtEnd()), { passive: true });
  toEnd();

  return function append(chunks) {
    if (!chunks.length) return;
    empty.hidden = true;
    const wasFollowing = follow.checked;
    let text = "";
    for (const chunk of chunks) {
      if (attempt && chunk.attempt !== attempt) text += `\n--- attempt ${chunk.attempt} ---\n`;
      attempt = chunk.attempt;
      text += chunk.text;
    }
    element.append(text);
    if (element.textContent.length > MAX_CHARACTERS) {
      element.textContent = element.textContent.slice(-MAX_CHARACTERS / 2);
    }
    if (wasFollowing) toEnd();
  };
}
