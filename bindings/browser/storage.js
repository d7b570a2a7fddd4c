// Model files in the storage that a browser keeps for a site (the origin private file system): fetched piece by piece, gone on
// with where that broke off, and read piece by piece. Runs in the worker, and in pages too where it lists and removes.

const FOLDER = "pteron";
/** What a fetch tells between two events. */
const EVERY = 1 << 20;

/** The folder, or null where the page may keep nothing. */
async function folder() {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch {
    return null;
  }
}

/** A file's name for an address: what it ends with, and what tells it from others that end alike. */
async function nameOf(url) {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url)));
  const last = new URL(url).pathname.split("/").pop().replace(/[^\w.-]/g, "_").slice(-60);
  return `${[...hash.slice(0, 8)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}-${last || "model"}`;
}

async function readJson(place, name) {
  try {
    return JSON.parse(await (await (await place.getFileHandle(name)).getFile()).text());
  } catch {
    return null;
  }
}

async function write(place, name, bytes) {
  const handle = await (await place.getFileHandle(name, { create: true })).createSyncAccessHandle();
  try {
    handle.truncate(0);
    handle.write(bytes);
    handle.flush();
  } finally {
    handle.close();
  }
}

const failure = (kind, reason) => Object.assign(new Error(reason), { details: { kind, reason } });

/** A reply with what was asked for, or an error of a kind. */
async function asked(url, headers) {
  const reply = await fetch(url, { headers }).catch((error) => {
    throw failure("Fetch", `${url}: ${error.message}`);
  });
  if (reply.ok || reply.status === 416) return reply;
  throw failure(reply.status === 404 || reply.status === 410 ? "NotFound" : "Fetch", `${url}: the server says ${reply.status}`);
}

/**
 * The file at an address: from storage, or fetched into it. `tell` hears of every part and says whether to go on.
 * Gives what a `Blob` gives: its size and its bytes as a stream.
 */
export async function fetched(url, keep, tell) {
  const place = keep ? await folder() : null;
  if (!place) return streamed(url, await asked(url, {}), tell);
  const name = await nameOf(url);
  const about = await readJson(place, `${name}.json`);
  const file = async () => (await place.getFileHandle(name)).getFile();
  if (about?.whole) {
    const found = await file().catch(() => null);
    if (found?.size === about.total) return found;
  }
  const handle = await (await place.getFileHandle(name, { create: true })).createSyncAccessHandle().catch(() => {
    throw failure("Storage", `${url} is being fetched by another page of this site`);
  });
  try {
    let at = about?.tag ? handle.getSize() : 0;
    const reply = await asked(url, at > 0 ? { Range: `bytes=${at}-`, "If-Range": about.tag } : {});
    if (reply.status !== 206) at = 0;
    if (reply.status === 416) throw failure("Fetch", `${url}: the server does not go on with it`);
    handle.truncate(at);
    const length = Number(reply.headers.get("content-length"));
    const total = length > 0 && !reply.headers.get("content-encoding") ? at + length : null;
    const tag = reply.headers.get("etag")?.startsWith("W/") ? null : reply.headers.get("etag");
    const note = (whole, size) =>
      write(place, `${name}.json`, new TextEncoder().encode(JSON.stringify({ url, tag, whole, total: size })));
    await note(false, total);
    at = await into(handle, at, reply, url, (bytes) => tell({ event: "fetching", file: url, bytes, total }));
    if (total !== null && at !== total) throw failure("Fetch", `${url}: ${at} of ${total} bytes came`);
    handle.flush();
    await note(true, at);
  } catch (error) {
    if (error.name === "QuotaExceededError") throw failure("Storage", `${url}: the site's storage is full`);
    throw error;
  } finally {
    handle.close();
  }
  return file();
}

async function into(handle, start, reply, url, tell) {
  let [at, told] = [start, start];
  const reader = reply.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw failure("Fetch", `${url}: ${error.message}`);
    });
    if (done) break;
    if (handle.write(value, { at }) !== value.length) throw failure("Storage", `${url}: the site's storage is full`);
    at += value.length;
    if (at - told < EVERY) continue;
    told = at;
    if (!(await tell(at))) {
      await reader.cancel();
      throw failure("Cancelled", "cancelled");
    }
  }
  if (!(await tell(at))) throw failure("Cancelled", "cancelled");
  return at;
}

/** A reply that is kept nowhere. Its length must be known, or it is gathered first. */
async function streamed(url, reply, tell) {
  const total = Number(reply.headers.get("content-length"));
  if (!(total > 0) || reply.headers.get("content-encoding")) return reply.blob();
  let [at, told] = [0, 0];
  const counted = new TransformStream({
    async transform(chunk, out) {
      at += chunk.length;
      if (at - told >= EVERY || at === total) {
        told = at;
        if (!(await tell({ event: "fetching", file: url, bytes: at, total }))) throw failure("Cancelled", "cancelled");
      }
      out.enqueue(chunk);
    },
  });
  return { size: total, stream: () => reply.body.pipeThrough(counted) };
}

/** Files that are kept: their addresses, how many bytes are here, and whether that is all. */
export async function stored() {
  const place = await folder();
  const found = [];
  if (!place) return found;
  for await (const name of place.keys()) {
    if (!name.endsWith(".json")) continue;
    const about = await readJson(place, name);
    const file = await place.getFileHandle(name.slice(0, -5)).then((handle) => handle.getFile()).catch(() => null);
    if (about && file) found.push({ url: about.url, bytes: file.size, isWhole: about.whole === true });
  }
  return found;
}

/** Removes the file of an address; whether there was one. */
export async function remove(url) {
  const place = await folder();
  if (!place) return false;
  const name = await nameOf(url);
  const gone = await Promise.all([name, `${name}.json`].map((each) => place.removeEntry(each).then(() => true, () => false)));
  return gone[0];
}
