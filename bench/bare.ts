/**
 * A proxy built from the two libraries that the gateway uses, its HTTP front and its own client, and nothing else: it
 * checks no key, and reads, records and counts nothing. Its cost is the cost of the platform; everything above that is
 * the gateway's own. `node bench/bare.ts PLAIN_PORT SECURE_PORT PLAIN_UPSTREAM SECURE_UPSTREAM CERTIFICATE`
 */
import { App, type HttpRequest, type HttpResponse } from 'uWebSockets.js'
import { readFileSync } from 'node:fs'
import { systemClock } from '../src/base/clock.ts'
import { createDirectTransport } from '../src/providers/upstream/client/direct-transport.ts'
import type { UpstreamCall, UpstreamHandler, UpstreamHead } from '../src/providers/upstream/transport.ts'

const [plainPort, securePort, plainUpstream, secureUpstream, certificate = ''] = process.argv.slice(2)
const TIMEOUTS = { headersTimeoutMs: 600_000, idleTimeoutMs: 600_000 }

const client = createDirectTransport({
  clock: systemClock,
  log: { fault: (_, message) => process.stderr.write(`${message}\n`) },
  maxIdle: 8192,
  ca: readFileSync(certificate, 'utf8'),
})

/** One request on its way, and its reply back as it comes. */
class Passage implements UpstreamHandler {
  readonly #response: HttpResponse
  readonly #chunks: Buffer[] = []
  #call: UpstreamCall | null = null
  /** Of a document of known length, which leaves with its length, as it came. */
  #whole: Buffer[] | null = null
  #gone = false

  constructor(response: HttpResponse, url: URL, headers: Readonly<Record<string, string>>) {
    this.#response = response
    response.onAborted(() => {
      this.#gone = true
      this.#call?.abort()
    })
    response.onWritable(() => {
      this.#call?.resume()
      return true
    })
    response.onData((chunk, isLast) => {
      // The memory of the chunk is taken back.
      this.#chunks.push(Buffer.from(chunk.slice(0)))
      if (!isLast || this.#gone) return
      const body = Buffer.concat(this.#chunks).toString()
      this.#call = client.start({ url, headers, body, ...TIMEOUTS }, this)
    })
  }

  onHead({ status, headers }: UpstreamHead): void {
    if (headers['content-length'] !== undefined) this.#whole = []
    this.#response.cork(() => {
      this.#response.writeStatus(String(status)).writeHeader('content-type', headers['content-type'] ?? '')
    })
  }

  onData(bytes: Buffer): void {
    if (this.#whole !== null) this.#whole.push(Buffer.from(bytes))
    else
      this.#response.cork(() => {
        if (!this.#response.write(bytes)) this.#call?.pause()
      })
  }

  onEnd(): void {
    const whole = this.#whole
    this.#response.cork(() => {
      if (whole === null) this.#response.end()
      else this.#response.end(Buffer.concat(whole))
    })
  }

  onError(): void {
    if (!this.#gone) this.#response.close()
  }
}

function passTo(origin: string) {
  const urls = new Map<string, URL>()
  return (response: HttpResponse, request: HttpRequest): void => {
    const path = request.getUrl()
    const url = urls.get(path) ?? new URL(path, origin)
    urls.set(path, url)
    const names = ['authorization', 'content-type']
    new Passage(response, url, Object.fromEntries(names.map(name => [name, request.getHeader(name)])))
  }
}

for (const [port, origin] of [
  [plainPort, `http://127.0.0.1:${plainUpstream}`],
  [securePort, `https://127.0.0.1:${secureUpstream}`],
] as const) {
  App()
    .post('/*', passTo(origin))
    .listen('127.0.0.1', Number(port), listening => {
      if (listening === false) throw new Error(`cannot listen on ${port}`)
    })
}
