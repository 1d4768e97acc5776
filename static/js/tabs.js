// The chosen tab is in the address, so that a link can point to it.

export function startTabs(list) {
  const button = (name) => list.querySelector(`#tab-${CSS.escape(name)}`);
  const fromAddress = () => location.hash.length > 1 && button(location.hash.slice(1))?.click();
  list.addEventListener("shown.bs.tab", (event) => {
    const name = event.target.id.replace("tab-", "");
    history.replaceState(history.state, "", `#${name}`);
  });
  addEventListener("hashchange", fromAddress);
  fromAddress();
}
