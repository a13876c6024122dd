/** The entry of a task worker that never becomes ready. */
setInterval(() => undefined, 60_000)
await new Promise(() => undefined)
