/** Reads large numbers of event streams, checks the relevant parts as they arrive, and keeps nothing. */
import { Agent, type ClientRequest, request } from 'node:http'
import { responsesPost, type Target } from './responses-post.ts'

/** How a stream ended: as it should, with a gap in its numbers, cut, or not as a stream at all. */
export interface ProbeResult {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Events, `[DONE]` and comments not counted. */
  readonly events: number
  readonly comments: number
  /** Type of the last event; null when there was none. */
  readonly last: string | null
  readonly done: boolean
  /** What broke the grammar first: a gap in `sequence_number`, a half frame, bytes after `[DONE]`. */
  readonly fault: string | null
  /** The body, when it was no event stream. */
  readonly body: string
  /** The connection was lost before the end of the answer. */
  readonly cut: boolean
}

interface ProbeOptions extends Target {
  readonly agent?: Agent
  /** Called with the text of each token, and when it was read, in microseconds of the machine's monotonic clock. */
  readonly onDelta?: (delta: string, atMicros: number) => void
  readonly onFrame?: (frame: string, atMicros: number) => void
}

export interface Probe {
  readonly result: Promise<ProbeResult>
  /** Events so far. */
  readonly events: number
  abort(): void
}

export const newAgent = (): Agent => new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY })

/** Microseconds on the clock that the stamps of provider-main.ts are on. */
export const nowMicros = (): number => Number(process.hrtime.bigint() / 1000n)

const EVENT = /^event: (\S+)\ndata: (.*)$/
const NUMBER = /"sequence_number":(\d+)/
const DELTA = /"delta":"((?:[^"\\]|\\.)*)"/

/** POST /v1/responses. Never rejects. */
export function openProbe(body: unknown, options: ProbeOptions): Probe {
  const { port, apiKey, agent, onDelta, onFrame } = options
  const text = JSON.stringify(body)
  let events = 0
  let comments = 0
  let last: string | null = null
  let done = false
  let fault: string | null = null
  let rest = ''
  let whole = ''
  const finished = Promise.withResolvers<ProbeResult>()
  let status = 0
  let headers: ProbeResult['headers'] = {}
  const finish = (cut: boolean): void => {
    if (rest.replace(/^\n+/, '') !== '' && !cut) fault ??= `half a frame: ${rest.slice(0, 100)}`
    finished.resolve({ status, headers, events, comments, last, done, fault, body: whole, cut })
  }

  const take = (frame: string, atMicros: number): void => {
    if (done) fault ??= `after [DONE]: ${frame.slice(0, 100)}`
    onFrame?.(frame, atMicros)
    if (frame.startsWith(':')) {
      comments++
      return
    }
    if (frame === 'data: [DONE]') {
      done = true
      return
    }
    const match = EVENT.exec(frame)
    if (match === null) {
      fault ??= `no proper frame: ${frame.slice(0, 100)}`
      return
    }
    const [, type = '', data = ''] = match
    // A text that holds the same words holds them with escaped quotes.
    const number = NUMBER.exec(data)?.[1]
    if (Number(number) !== events) fault ??= `event ${events} has number ${number}`
    events++
    last = type
    if (onDelta !== undefined && type === 'response.output_text.delta') {
      onDelta(DELTA.exec(data)?.[1] ?? '', atMicros)
    }
  }

  const sent: ClientRequest = request(responsesPost({ port, apiKey }, agent ?? false, text), response => {
    status = response.statusCode ?? 0
    headers = response.headers
    const isStream = String(headers['content-type']).startsWith('text/event-stream')
    response.setEncoding('utf8')
    response.on('data', (chunk: string) => {
      if (!isStream) {
        whole += chunk
        return
      }
      const atMicros = nowMicros()
      rest += chunk
      for (let end = rest.indexOf('\n\n'); end !== -1; end = rest.indexOf('\n\n')) {
        const frame = rest.slice(0, end).replace(/^\n+/, '')
        rest = rest.slice(end + 2)
        if (frame !== '') take(frame, atMicros)
      }
    })
    response.on('end', () => finish(false))
    response.on('error', () => finish(true))
    response.on('close', () => finish(true))
  })
  sent.on('error', () => finish(true))
  sent.end(text)
  return {
    result: finished.promise,
    get events() {
      return events
    },
    abort: () => sent.destroy(),
  }
}

/** The value below which `part` (0 to 1) of the values lie; NaN of none. */
export function percentile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((left, right) => left - right)
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? Number.NaN
}

/** Waits until it holds, looking every 50 ms; false when it does not within the time. */
export async function eventually(holds: () => boolean | Promise<boolean>, limitMs: number): Promise<boolean> {
  const endMs = performance.now() + limitMs
  while (!(await holds())) {
    if (performance.now() > endMs) return false
    await pause(50)
  }
  return true
}

/** Real time: what is measured in these suites is how the running process behaves in it. */
export const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

export const mib = (bytes: number): string => `${(bytes / 1024 / 1024).toFixed(1)} MiB`
