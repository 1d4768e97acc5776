// Sends a file to the API in parts. An open upload of the same file is continued, also after a reload.
import { Refused, csrfToken } from "./ask.js";

const ADDRESS = "/api/v1/datasets/uploads";
const PART_BYTES = 4 * 1024 ** 2;
const FIRST_BYTES = 1024 ** 2;
const PATIENCE_MS = 60_000;
const RETRY_MS = 1000;
const MEGABYTE = 1e6;

// Returns the dataset; `show(text, fraction)` is called as parts arrive. Throws Refused.
export async function upload(file, name, show, isText = false) {
  const opened = await openUpload(file, name, isText);
  const address = `${ADDRESS}/${opened.id}`;
  let offset = opened.offset;
  while (offset < file.size && !opened.dataset_id) {
    show(`Uploading ${file.name}: ${sent(offset, file.size)}`, offset / file.size);
    offset = await patiently(() => sendPart(address, file, offset), show);
  }
  show(`Reading ${file.name} …`, 1);
  return (await patiently(() => call(`${address}/finish`, { method: "POST" }), show)).data;
}

async function openUpload(file, name, isText) {
  const fingerprint = `${isText ? "text " : ""}${await fingerprintOf(file)}`;
  const { data } = await call(ADDRESS);
  const found = data.find((each) => each.fingerprint === fingerprint && each.size_bytes === file.size);
  if (found) return found;
  const fields = { filename: file.name.slice(-200), name, size_bytes: file.size, fingerprint };
  const body = JSON.stringify(isText ? { ...fields, delimiter: "\n" } : fields);
  const headers = { "Content-Type": "application/json" };
  return (await call(ADDRESS, { method: "POST", body, headers })).data;
}

// The browser's digests take a block at a time only, and none on a page without HTTPS.
async function fingerprintOf(file) {
  const known = `page ${file.lastModified} ${file.name.slice(-80)}`;
  if (!window.crypto.subtle) return known;
  const block = await file.slice(0, FIRST_BYTES).arrayBuffer();
  const digest = new Uint8Array(await window.crypto.subtle.digest("SHA-256", block));
  return `${known} ${[...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// Returns the next offset: also where the server has received more than its responses said.
async function sendPart(address, file, offset) {
  const headers = { "Content-Type": "application/offset+octet-stream", "Upload-Offset": offset };
  const body = file.slice(offset, offset + PART_BYTES);
  try {
    const { response } = await call(address, { method: "PATCH", body, headers });
    return Number(response.headers.get("Upload-Offset"));
  } catch (error) {
    if (error.code !== "WRONG_OFFSET") throw error;
    return error.details.offset;
  }
}

// Repeats the call while there is no connection, for a minute, or while upload or server are busy.
async function patiently(attempt, show) {
  const giveUpAt = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const isAway = error instanceof TypeError; // what fetch throws without a connection
      const isBusy = error.code === "UPLOAD_BUSY" || error.code === "BUSY";
      if (!(isAway && Date.now() < giveUpAt) && !isBusy) throw error;
      if (isAway) show("The connection was cut; trying again …");
      const wait = (error.details?.retry_after_seconds ?? 0) * 1000 || RETRY_MS;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

async function call(url, options = {}) {
  const headers = { "X-CSRFToken": csrfToken(), ...options.headers };
  const response = await fetch(url, { ...options, headers, credentials: "same-origin" });
  if (response.status === 204) return { response };
  const isJSON = response.headers.get("Content-Type")?.startsWith("application/json");
  const body = isJSON ? await response.json() : {};
  if (response.ok && isJSON) return { response, data: body.data };
  const error = body.error ?? { message: `The server answered ${response.status}.` };
  throw Object.assign(new Refused(error.message), { code: error.code, details: error.details });
}

export function explain(error) {
  if (error instanceof Refused) return error.message;
  if (error instanceof TypeError) return "The connection was cut; choose the file again to continue.";
  return "The file cannot be read; choose it again.";
}

function sent(offset, size) {
  const megabytes = (bytes, round) => round(bytes / MEGABYTE).toLocaleString("en-US");
  return `${megabytes(offset, Math.floor)} of ${megabytes(size, Math.ceil)} MB`;
}
