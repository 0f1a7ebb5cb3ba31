// Sends files to the API in parts, as one upload that goes on where it stopped if it is interrupted. Without scripts
// the form sends them whole.
const PAUSES = [1000, 3000, 9000];
const MAX_FILES = 5000;
// The bytes at the beginning and at the end by which the same files are known again.
const ENDS = 1024 * 1024;

function start(form) {
  const input = form.querySelector("input[type=file]");
  const chosen = () => [...input.files].map((file) => ({ name: file.webkitRelativePath || file.name, file }));
  // The dialog of files takes no folder, and that of a folder no files.
  const takeFolder = (wanted) => {
    input.webkitdirectory = wanted;
  };
  form.querySelector("[data-upload-folder]")?.addEventListener("click", () => {
    takeFolder(true);
    input.click();
  });
  input.addEventListener("cancel", () => takeFolder(false));
  input.addEventListener("change", () => {
    const files = chosen();
    takeFolder(false);
    send(form, files);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, chosen());
  });
  form.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("over");
  });
  form.addEventListener("dragleave", () => form.classList.remove("over"));
  form.addEventListener("drop", async (event) => {
    event.preventDefault();
    form.classList.remove("over");
    try {
      send(form, await dropped(event.dataTransfer));
    } catch (error) {
      show(form, `What was dropped cannot be read: ${error.message}`);
    }
  });
}

// The files that were dropped, and those in folders, with their paths.
async function dropped(transfer) {
  // Only now: the list is empty after the event.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ name: file.name, file }));
  const found = [];
  const waiting = [...entries];
  while (waiting.length && found.length <= MAX_FILES) {
    const entry = waiting.shift();
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => {
        entry.file(resolve, reject);
      });
      found.push({ name: entry.fullPath.replace(/^\//, ""), file });
      continue;
    }
    const reader = entry.createReader();
    // A reader gives a hundred entries at a time.
    for (let some = null; !some || some.length;) {
      some = await new Promise((resolve, reject) => {
        reader.readEntries(resolve, reject);
      });
      waiting.push(...some);
    }
  }
  return found;
}

async function send(form, files) {
  if (!files.length || form.dataset.busy) return;
  files.sort((one, other) => (one.name < other.name ? -1 : 1));
  const wanted = form.dataset;
  const all = new Blob(files.map(({ file }) => file));
  if (!all.size) {
    show(form, files.length > 1 ? "These files are empty." : `${files[0].name} is empty.`);
    form.querySelector("input[type=file]").value = "";
    return;
  }
  if (files.length > MAX_FILES) {
    show(form, `These are more than ${MAX_FILES.toLocaleString()} files. Pack them into a ZIP archive.`);
    return;
  }
  if (wanted.most && all.size > Number(wanted.most)) {
    show(form, "This is more than 2 GB. Import it with the command import_memories instead.");
    return;
  }
  form.dataset.busy = "1";
  const cancelled = new AbortController();
  const button = form.querySelector("[data-upload-cancel]");
  button.onclick = () => cancelled.abort();
  let job = null;
  try {
    const body = described(files, all.size, await fingerprint(files, all));
    const isOther = wanted.fingerprint ? body.fingerprint !== wanted.fingerprint : all.size !== Number(wanted.size);
    if (wanted.size && isOther) {
      throw new Error(`This is not ${wanted.name} as it was: it is another file, or was changed.`);
    }
    // What has begun can be removed: a request that is cancelled may have begun it all the same.
    job = await call(form, "POST", wanted.upload, JSON.stringify(body));
    button.hidden = false;
    while (job.state === "uploading") {
      show(form, `${percent(job)} of ${job.name}`, job.received / job.size);
      const part = all.slice(job.received, job.received + Number(wanted.part));
      job = await call(form, "PUT", `${wanted.upload}/${job.id}/data?offset=${job.received}`, part, cancelled.signal);
    }
    show(form, "Received. Looking into it …", 1);
    // The page may be shown again as it is, by the button Back.
    delete form.dataset.busy;
    location.assign(`${wanted.page}${job.id}/${wanted.chosen ? `?from=${wanted.chosen}` : ""}`);
  } catch (error) {
    delete form.dataset.busy;
    // A field that has the file already would not notice that it is chosen again.
    form.querySelector("input[type=file]").value = "";
    if (cancelled.signal.aborted) await remove(form, job);
    else show(form, `${sentence(error.message)} Choose ${files.length > 1 ? "the files" : "the file"} again to go on.`);
  }
  button.hidden = true;
}

async function remove(form, job) {
  const message = "Cancelled. Nothing is stored.";
  try {
    if (job) await call(form, "DELETE", `${form.dataset.upload}/${job.id}`);
  } catch (error) {
    show(form, `The upload has stopped, and what was received is not removed yet: ${error.message}`);
    return;
  }
  show(form, message);
  if (form.dataset.size) location.assign(form.dataset.page);
}

function described(files, size, mark) {
  const listed = files.map(({ name, file }) => ({
    name,
    size: file.size,
    modified: new Date(file.lastModified).toISOString(),
  }));
  const alone = { ...listed[0], name: files[0].file.name };
  return { ...(files.length === 1 ? alone : { name: called(files), size, files: listed }), fingerprint: mark };
}

// The folder that all files share, or the first file.
function called(files) {
  const [top] = files[0].name.split("/");
  const isShared = files.every(({ name }) => name.startsWith(`${top}/`));
  if (isShared) return `${top} (${files.length.toLocaleString()} files)`;
  return `${files[0].file.name} and ${(files.length - 1).toLocaleString()} more`;
}

// Names, sizes and dates, and the first and last bytes. It need not resist anybody: it compares a person's own files.
async function fingerprint(files, all) {
  const text = JSON.stringify(files.map(({ name, file }) => [name, file.size, file.lastModified]));
  const known = new Blob([text, all.slice(0, ENDS), all.slice(Math.max(ENDS, all.size - ENDS))]);
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (const byte of new Uint8Array(await known.arrayBuffer())) {
    a = Math.imul(a ^ byte, 2654435761);
    b = Math.imul(b ^ byte, 1597334677);
    a ^= b >>> 15;
  }
  return [a, b].map((number) => (number >>> 0).toString(16).padStart(8, "0")).join("");
}

const percent = (job) => `${Math.floor((100 * job.received) / job.size)} %`;

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

function show(form, text, share) {
  const bar = form.querySelector("progress");
  const state = form.querySelector("[data-upload-state]");
  bar.hidden = share === undefined;
  if (share !== undefined) bar.value = share;
  state.hidden = false;
  state.textContent = text;
}

// A connection that breaks is tried again; what the site refuses is not.
async function call(form, method, url, body, signal) {
  const headers = { "X-CSRFToken": form.querySelector("[name=csrfmiddlewaretoken]").value };
  if (body) headers["Content-Type"] = typeof body === "string" ? "application/json" : "application/octet-stream";
  for (let attempt = 0; ; attempt += 1) {
    let response = null;
    try {
      response = await fetch(url, { method, headers, body, signal });
    } catch (error) {
      if (signal?.aborted || attempt === PAUSES.length) throw new Error("The connection broke.", { cause: error });
    }
    if (response?.ok) return response.status === 204 ? null : response.json();
    if (response && response.status < 500 && response.status !== 429) {
      const refusal = await response.json().catch(() => ({ detail: `The site answered ${response.status}.` }));
      throw new Error(refusal.detail);
    }
    if (attempt === PAUSES.length) throw new Error("The site does not answer.");
    await new Promise((resolve) => {
      setTimeout(resolve, PAUSES[attempt]);
    });
    if (signal?.aborted) throw new Error("Cancelled.");
  }
}

document.querySelectorAll("form[data-upload]").forEach(start);
