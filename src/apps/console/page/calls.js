/**
 * Requests to the admin port. Each carries the management key, which exists only in the memory of this tab: it is
 * stored nowhere, and lost on reload. Requests of a signed-in user carry the session cookie instead.
 */

const DATA_PATH = '/console/data/'

class Refused extends Error {
  constructor(status, message) {
    super(message)
    this.name = 'Refused'
    this.status = status
  }
}

export class Calls {
  #key
  #onRefused

  /**
   * @param key null: the session of this browser
   * @param onRefused called if the key is invalid, or no longer valid
   */
  constructor(key, onRefused) {
    this.#key = key
    this.#onRefused = onRefused
  }

  get isSession() {
    return this.#key === null
  }

  /** Starts or ends the session of this browser. @throws Refused, or the error of the network */
  async sign(name) {
    const reply = await this.#ask(name, { method: 'POST' })
    return await reply.json()
  }

  /** The document of a view. @throws Refused, or the error of the network */
  async view(name, query = {}, signal = undefined) {
    const search = new URLSearchParams(query).toString()
    const reply = await this.#ask(search === '' ? name : `${name}?${search}`, { signal })
    return await reply.json()
  }

  /** The answer of a management operation: its document. @throws Refused, or the error of the network */
  async api(method, path, { query = {}, body = undefined, signal = undefined } = {}) {
    const presentFields = Object.entries(query).filter(
      ([, value]) => value !== undefined && value !== null && value !== '',
    )
    const search = new URLSearchParams(presentFields).toString()
    const reply = await this.#ask(`api/${path}${search === '' ? '' : `?${search}`}`, {
      method,
      signal,
      ...(body === undefined
        ? {}
        : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    })
    return await reply.json()
  }

  /** Calls `onEvent` with each event of the live list until it ends. */
  async live(onEvent, signal) {
    const reply = await this.#ask('live', { signal })
    await readEvents(reply, onEvent)
  }

  /** The answer of the public port to one request with an API key, with any status. */
  async trial(apiKey, body, signal) {
    return await this.#fetch('try', {
      method: 'POST',
      signal,
      headers: { 'content-type': 'application/json', 'x-api-key': apiKey },
      body: JSON.stringify(body),
    })
  }

  async #ask(path, init) {
    const reply = await this.#fetch(path, init)
    if (reply.ok) return reply
    const refused = new Refused(reply.status, await messageOf(reply))
    if (reply.status === 401) this.#onRefused(refused)
    throw refused
  }

  #fetch(path, init) {
    return fetch(DATA_PATH + path, {
      ...init,
      cache: 'no-store',
      credentials: this.isSession ? 'same-origin' : 'omit',
      redirect: 'error',
      headers: {
        ...init.headers,
        ...(this.isSession ? { 'x-sluice-console': '1' } : { authorization: `Bearer ${this.#key}` }),
      },
    })
  }
}

/** The message of an error document, or the status. */
export async function messageOf(reply) {
  try {
    const { error } = await reply.json()
    return String(error.message)
  } catch {
    return `The gateway answered ${reply.status}`
  }
}

/** Reads an event stream: `onEvent` gets the name and the data of each event. */
export async function readEvents(reply, onEvent) {
  const reader = reply.body.getReader()
  const decoder = new TextDecoder()
  let pending = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    pending += decoder.decode(value, { stream: true })
    const frames = pending.split('\n\n')
    pending = frames.pop() ?? ''
    for (const frame of frames) {
      const name = /^event: (.*)$/m.exec(frame)?.[1] ?? 'message'
      const data = /^data: (.*)$/m.exec(frame)?.[1]
      if (data !== undefined) onEvent(name, data)
    }
  }
}
