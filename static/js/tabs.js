// The chosen tab is in the address, so that a link can point to it.

export function startTabs(list) {
  const button = (name) => list.querySelector(`#tab-${CSS.escape(name)}`);
  const fromAddress = () => location.hash.length > 1 && button(location.hash.slice(1))?.click();
  const keep = (tab) => history.replaceState(history.state, "", tab.hash);
  list.addEventListener("shown.bs.tab", (event) => keep(event.target));
  addEventListener("hashchange", fromAddress);
  // Before this ran, a click on a tab followed its link, or showed it without its address.
  const shown = list.querySelector(".active");
  if (!location.hash && shown !== list.querySelector("a")) keep(shown);
  fromAddress();
}
