/** A gateway process with a console and simulated models: one of them falls back, one is down. */
import { randomBytes } from 'node:crypto'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts'
import { type Caller, caller } from './management.ts'

/** Must be seen nowhere. */
export const PROVIDER_SECRET = 'provider-secret-4711'
/** Names are the operator's own text, and may look like markup. */
export const MARKUP = '<img src=x onerror=alert(1)>'

export interface ConsoleWorld {
  readonly gateway: GatewayProcess
  readonly managementKey: string
  readonly storageUrl: string
  /** Calls management operations of the public port. */
  readonly manage: Caller
  /** Asks a path of the admin port; with the management key, unless another one or none is given. */
  admin(path: string, init?: RequestInit, key?: string | null): Promise<Response>
  /** POST /responses with the API key; the text of the answer. */
  respond(body: object, key?: string): Promise<{ readonly status: number; readonly text: string }>
}

/** @param settings further fields of the configuration file */
export async function startConsoleWorld(
  t: Pick<Test, 'teardown'>,
  settings: Readonly<Record<string, unknown>> = {},
  environment: Readonly<Record<string, string>> = {},
): Promise<ConsoleWorld> {
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const down = { provider: 'down', upstreamModel: 'any' }
  const gateway = await startGatewayProcess(
    t,
    {
      simulator: { enabled: true },
      routing: { loadBalancing: false },
      providers: [
        {
          slug: 'down',
          name: MARKUP,
          format: 'openai-responses',
          // Nobody listens there.
          baseUrl: 'http://127.0.0.1:1/v1',
          apiKey: PROVIDER_SECRET,
        },
      ],
      models: [
        { id: 'test/slow', endpoints: [{ provider: 'sim', upstreamModel: 'write-300-200' }] },
        { id: 'test/falls-back', endpoints: [down, { provider: 'sim', upstreamModel: 'echo' }] },
        { id: 'test/down', endpoints: [down] },
      ],
      ...settings,
    },
    { GATEWAY_MANAGEMENT_KEY: managementKey, ...environment },
  )
  return {
    gateway,
    managementKey,
    storageUrl: `sqlite:${join(dirname(gateway.configFile), 'data/gateway.db')}`,
    manage: caller(`${gateway.url}/v1`, managementKey),
    admin(path, init = {}, key = managementKey) {
      const authorization = key === null ? {} : { authorization: `Bearer ${key}` }
      return fetch(gateway.adminUrl + path, { ...init, headers: { ...authorization, ...init.headers } })
    },
    async respond(body, key = gateway.apiKey) {
      const reply = await fetch(`${gateway.url}/v1/responses`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      })
      return { status: reply.status, text: await reply.text() }
    },
  }
}

/** A row of the live list, as far as tests look at it. */
export interface LiveRow {
  readonly id: string
  readonly model: string | null
  readonly status: number
  readonly outcome: string
  readonly error: string | null
  readonly cause: string | null
  readonly cost: number | null
  readonly firstTokenMs: number | null
  readonly durationMs: number
  readonly attempts: readonly { provider: string; error: string | null; cause: string | null }[]
  readonly stages: Readonly<Record<string, number>> | null
}

/** The live list as a page follows it. */
export class LiveReader {
  /** All that came. */
  text = ''
  readonly rows = new Map<string, LiveRow>()
  readonly events: string[] = []
  isOver = false
  readonly #leaving = new AbortController()

  /** Resolves with the first event. */
  static async open(world: Pick<ConsoleWorld, 'admin'>, key?: string): Promise<LiveReader> {
    const reader = new LiveReader()
    const reply = await world.admin('/console/data/live', { signal: reader.#leaving.signal }, key)
    if (!reply.ok) throw new Error(`${reply.status} ${await reply.text()}`)
    void reader.#read(reply)
    return reader
  }

  close(): void {
    this.#leaving.abort()
  }

  async #read(reply: Response): Promise<void> {
    const decoder = new TextDecoder()
    let rest = ''
    try {
      for await (const chunk of reply.body ?? []) {
        const text = decoder.decode(chunk, { stream: true })
        this.text += text
        const frames = (rest + text).split('\n\n')
        rest = frames.pop() ?? ''
        for (const frame of frames) this.#take(frame)
      }
    } catch {
      // It was closed.
    }
    this.isOver = true
  }

  #take(frame: string): void {
    const [, event, data = '{}'] = /^event: (\w+)\ndata: (.*)$/.exec(frame) ?? []
    if (event === undefined) return
    this.events.push(event)
    const { rows = [] } = JSON.parse(data) as { rows?: readonly LiveRow[] }
    for (const row of rows) this.rows.set(row.id, row)
  }
}
