/**
 * Plays the providers of a replay: a call gets the reply that was recorded for it, and a call that was not recorded is
 * answered by the simulated provider. A server on loopback; each provider has a base URL of its own.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { parseJson, record } from '../../../base/json.ts'
import { startSim } from '../../../process/start/main-services.ts'
import type { RecordedCall } from './recorded-request.ts'

/** The model of the simulated provider that answers calls that were not recorded. */
const SIMULATED_MODEL = 'echo'
const GEMINI_MODEL = /(?<=\/models\/)[^/:]+(?=:)/

export class RecordedProviders {
  readonly #server = createServer((request, response) => void this.#answer(request, response))
  #sim: Awaited<ReturnType<typeof startSim>> | null = null
  #url = ''
  #pendingCalls: RecordedCall[] = []
  #isSimulated = false

  async listen(): Promise<void> {
    this.#sim = await startSim()
    await new Promise<void>(resolve => void this.#server.listen(0, '127.0.0.1', resolve))
    this.#url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** The simulated provider itself. */
  get simUrl(): string {
    return this.#sim?.url ?? ''
  }

  /** The base URL of a provider. */
  urlOf(slug: string): string {
    return `${this.#url}/${encodeURIComponent(slug)}`
  }

  /** Begins the next request: each provider plays the replies to its recorded calls in their order. */
  begin(calls: readonly RecordedCall[]): void {
    this.#pendingCalls = [...calls]
    this.#isSimulated = false
  }

  /** True if the simulated provider has answered a call since `begin`. */
  get isSimulated(): boolean {
    return this.#isSimulated
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise<void>(resolve => void this.#server.close(() => resolve()))
    await this.#sim?.server.close()
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, encodedSlug = '', ...pathParts] = (request.url ?? '').split('/')
    const slug = decodeURIComponent(encodedSlug)
    const body = await bodyOf(request)
    const index = this.#pendingCalls.findIndex(({ provider }) => provider === slug)
    const [call] = index === -1 ? [] : this.#pendingCalls.splice(index, 1)
    try {
      if (call === undefined) await this.#simulate(request, `/${pathParts.join('/')}`, body, response)
      else if (call.status === null) response.destroy()
      else response.writeHead(call.status, { ...call.headers }).end(call.reply)
    } catch {
      response.destroy()
    }
  }

  async #simulate(
    { method = 'POST', headers }: IncomingMessage,
    path: string,
    body: Buffer,
    response: ServerResponse,
  ): Promise<void> {
    this.#isSimulated = true
    const fields = record(parseJson(body.toString()))
    const requestBody =
      fields === null
        ? body
        : JSON.stringify('model' in fields ? { ...fields, model: SIMULATED_MODEL } : fields)
    const reply = await fetch(`${this.simUrl}${path.replace(GEMINI_MODEL, SIMULATED_MODEL)}`, {
      method,
      headers: { 'content-type': headers['content-type'] ?? 'application/json', authorization: 'Bearer sim' },
      ...(method === 'GET' ? {} : { body: requestBody }),
    })
    response.writeHead(reply.status, {
      'content-type': reply.headers.get('content-type') ?? 'application/json',
    })
    response.end(Buffer.from(await reply.arrayBuffer()))
  }
}

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk)
  return Buffer.concat(chunks)
}
