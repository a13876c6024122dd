/**
 * The live list of this tab: the latest requests by id, and the intervals of the charts. Reconnects after a lost
 * connection.
 */

const MAX_ROWS = 500
const RETRY_FIRST_MS = 1_000
const RETRY_MAX_MS = 15_000

export class Live {
  /** Newest first. */
  rows = []
  spans = new Map()
  spanSeconds = 5
  spansMax = 180
  /** `connecting`, `live`, `lost` or `refused`. */
  state = 'connecting'
  /** Number of requests that the server left out, because too many ended at once. */
  unlisted = 0
  /** Milliseconds that the server's clock is ahead of this one. */
  #aheadMs = 0
  #calls
  #onChange
  #leaving = new AbortController()

  constructor(calls, onChange) {
    this.#calls = calls
    this.#onChange = onChange
    void this.#follow()
  }

  /** Unix seconds on the server. */
  nowSeconds() {
    return (Date.now() + this.#aheadMs) / 1000
  }

  close() {
    this.#leaving.abort()
  }

  async #follow() {
    const { signal } = this.#leaving
    let delayMs = RETRY_FIRST_MS
    while (!signal.aborted && this.state !== 'refused') {
      try {
        await this.#calls.live((name, data) => {
          delayMs = RETRY_FIRST_MS
          this.#onEvent(name, JSON.parse(data))
        }, signal)
      } catch (error) {
        if (error.status === 401 || error.status === 403) this.state = 'refused'
      }
      if (signal.aborted) return
      if (this.state !== 'refused') this.state = 'lost'
      this.#onChange()
      await new Promise(resolve => setTimeout(resolve, delayMs))
      delayMs = Math.min(delayMs * 2, RETRY_MAX_MS)
    }
  }

  #onEvent(name, event) {
    if (name === 'refused') {
      this.state = 'refused'
    } else {
      this.#aheadMs = event.now - Date.now()
      this.state = 'live'
      if (name === 'start') {
        this.rows = []
        this.spans = new Map()
        this.spanSeconds = event.spanSeconds
        this.spansMax = event.spansMax
      }
      this.unlisted += event.unlisted ?? 0
      this.#update(event.rows)
      for (const span of event.spans) this.spans.set(span.from, span)
      const oldest = event.now / 1000 - this.spanSeconds * this.spansMax
      for (const from of this.spans.keys()) if (from < oldest) this.spans.delete(from)
    }
    this.#onChange()
  }

  #update(changed) {
    if (changed.length === 0) return
    const byId = new Map(changed.map(row => [row.id, row]))
    const updatedRows = this.rows.map(row => {
      const newer = byId.get(row.id)
      byId.delete(row.id)
      return newer ?? row
    })
    this.rows = [...[...byId.values()].reverse(), ...updatedRows].slice(0, MAX_ROWS)
  }
}
