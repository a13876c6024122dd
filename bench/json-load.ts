/**
 * Load generator for complete replies: autocannon in a process of its own, with a check of every body. One connection
 * is timed again afterwards with a raw socket, because autocannon measures in whole milliseconds. Prints the same lines
 * as the probes. `node bench/json-load.ts PORT PATH CONNECTIONS WARM_SECONDS WINDOW_SECONDS HEADERS_JSON BODY EXPECTED
 * TIMES REQUESTS` EXPECTED must occur TIMES times in each reply. The window ends after REQUESTS requests, or after
 * WINDOW_SECONDS if REQUESTS is 0.
 */
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { connect } from 'node:net'
import { quantile } from './stats.ts'

interface Result {
  readonly requests: { readonly total: number }
  readonly errors: number
  readonly timeouts: number
  readonly mismatches: number
  readonly non2xx: number
  readonly statusCodeStats: Readonly<Record<string, { readonly count: number }>>
  readonly duration: number
  readonly latency: { readonly p50: number; readonly p99: number; readonly max: number }
}

// The package brings no types.
const autocannon = createRequire(import.meta.url)('autocannon') as (options: object) => Promise<Result>

const [
  port = '',
  path = '',
  connections = '',
  warm = '',
  window = '',
  headers = '',
  body = '',
  expected = '',
  times = '1',
  requests = '0',
] = process.argv.slice(2)

/** @param length in seconds, or in requests */
function run(length: { readonly duration: number } | { readonly amount: number }): Promise<Result> {
  return autocannon({
    url: `http://127.0.0.1:${port}${path}`,
    method: 'POST',
    connections: Number(connections),
    ...length,
    headers: JSON.parse(headers) as object,
    body,
    verifyBody: (text: string) => text.split(expected).length - 1 === Number(times),
  })
}

/** Microseconds from sending a request to the last byte of its reply, one request after the other, sorted. */
async function serialLatencies(seconds: number): Promise<number[]> {
  const socket = connect(Number(port), '127.0.0.1').setNoDelay(true)
  await once(socket, 'connect')
  const lines = Object.entries(JSON.parse(headers) as Record<string, string>).map(
    ([k, v]) => `${k}: ${v}\r\n`,
  )
  const request = `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n${lines.join('')}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  const times: number[] = []
  const endAt = performance.now() + seconds * 1000
  let text = ''
  let sentAt = process.hrtime.bigint()
  await new Promise<void>((resolve, reject) => {
    socket.on('error', reject).on('close', () => reject(new Error('the connection was closed')))
    socket.on('data', (piece: Buffer) => {
      text += piece.toString('latin1')
      if (!whole(text)) return
      times.push(Number(process.hrtime.bigint() - sentAt) / 1000)
      text = ''
      if (performance.now() >= endAt) {
        socket.removeAllListeners('close').destroy()
        resolve()
        return
      }
      sentAt = process.hrtime.bigint()
      socket.write(request)
    })
    sentAt = process.hrtime.bigint()
    socket.write(request)
  })
  return times.sort((a, b) => a - b)
}

function whole(reply: string): boolean {
  const head = reply.indexOf('\r\n\r\n')
  if (head === -1) return false
  const length = /\r\ncontent-length: *(\d+)/i.exec(reply.slice(0, head))
  return length === null ? reply.endsWith('\r\n0\r\n\r\n') : reply.length >= head + 4 + Number(length[1])
}

function say(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`)
}

await run({ duration: Number(warm) })
say({ phase: 'window' })
const result = await run(requests === '0' ? { duration: Number(window) } : { amount: Number(requests) })
say({ phase: 'end' })
if (result.non2xx > 0) process.stderr.write(`refused: ${JSON.stringify(result.statusCodeStats)}\n`)
const serial = connections === '1' ? await serialLatencies(1) : []
say({
  requests: result.requests.total,
  seconds: result.duration,
  errors: result.errors + result.timeouts + result.non2xx,
  wrong: result.mismatches,
  latencyMs: { p50: result.latency.p50, p99: result.latency.p99, max: result.latency.max },
  serialMicros: serial.length === 0 ? null : { p50: quantile(serial, 0.5), p99: quantile(serial, 0.99) },
})
// autocannon may keep sockets of its last round.
process.exit(0)
