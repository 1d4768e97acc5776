// What metrics are called on the page, and how their values read.
import { bytes, number, percent, share } from "./numbers.js";

const KNOWN = {
  "system/data_wait_share": { title: "Time spent waiting for data", format: share },
  "system/cpu_percent": { title: "CPU (100% is one core)", format: percent },
  "system/memory_bytes": { title: "Memory", format: bytes },
  "load/cpu_percent": { title: "CPU of all cores", format: percent },
  "load/memory_bytes": { title: "Memory in use", format: bytes },
  "load/gpu_percent": { title: "GPU utilization", format: percent },
  "load/gpu_memory_bytes": { title: "GPU memory in use", format: bytes },
  "system/gpu_utilization": { title: "GPU utilization", format: percent },
  "system/gpu_memory_bytes": { title: "GPU memory", format: bytes },
};

export function titleOf(name) {
  const title = KNOWN[name]?.title ?? name.replace(/^system\//, "").replaceAll("_", " ");
  return title[0].toUpperCase() + title.slice(1);
}

export const formatOf = (name) => KNOWN[name]?.format ?? number;
