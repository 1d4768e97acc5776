// The switch of browser notifications on the page of notifications.
import { isOn, isSupported, set } from "./notify.js";

const button = document.getElementById("browser-notifications");
const state = document.getElementById("browser-state");

function show() {
  button.textContent = isOn() ? "Turn off" : "Turn on";
  if (!isSupported()) {
    button.disabled = true;
    state.textContent = "This browser has no notifications, or the page is not served by HTTPS.";
  } else if (Notification.permission === "denied") {
    button.disabled = true;
    state.textContent = "This browser blocks notifications of this site; its settings allow them.";
  }
}

button.addEventListener("click", async () => {
  const wanted = !isOn();
  if (wanted && (await Notification.requestPermission()) !== "granted") return show();
  set(wanted);
  show();
});

show();
