/** Requests to be explained: a gateway process, scripted providers, and the command run in its folder. */
import { request as httpRequest } from 'node:http'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { startCommand } from './command-line.ts'
import { type GatewayProcess, startGatewayProcess } from './gateway-process.ts'
import { ScriptedProvider, type ScriptedReply } from './provider.ts'
import { eventually } from './stream-probe.ts'

export const OK: ScriptedReply = { text: 'Fine.' }
/** Explanations are written a second and a half after the end; machines may be busy. */
const KEPT_MS = 30_000

export interface Asking {
  readonly key?: string
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Sent as it is. */
  readonly raw?: string
  readonly host?: string
  /** The client hangs up when this resolves. */
  readonly leaves?: Promise<unknown>
}

export interface Asked {
  readonly status: number
  /** `X-Request-Id` of the answer. */
  readonly id: string
  readonly text: string
}

interface WhyWorld {
  readonly gateway: GatewayProcess
  readonly a: ScriptedProvider
  readonly b: ScriptedProvider
  /** Sends one request; the name of its model is the part after the slash for the providers. */
  ask(body: object, how?: Asking): Promise<Asked>
  /** The explanations of these ids as `sluice why --json` tells them, once all are kept. */
  explained(ids: readonly string[]): Promise<ReadonlyMap<string, Told>>
  /** Resolves when so many requests wait for a place. */
  queued(requests: number): Promise<unknown>
  /** One run of the command. */
  why(...words: string[]): Promise<{ code: number | null; stdout: string; stderr: string }>
}

export interface Told extends Readonly<Record<string, unknown>> {
  readonly reasons: readonly string[]
  /** All lines of the command without `--json`. */
  readonly lines: readonly string[]
}

/** The database of the process. */
export const storageOf = ({ configFile }: GatewayProcess): string =>
  `sqlite:${join(dirname(configFile), 'data/gateway.db')}`

/** Runs the commands of many ids in one process, which costs one start. */
const MANY = `
  const [command, config, ...ids] = process.argv.slice(1)
  const { run } = await import(command)
  for (const id of ids) {
    console.log('#json ' + id)
    await run(['why', id, '--json', '--config', config])
    console.log('#lines ' + id)
    await run(['why', id, '--config', config])
  }
`

export async function startWhyWorld(
  t: Test,
  settings: (urls: { a: string; b: string }) => Readonly<Record<string, unknown>>,
  environment: Readonly<Record<string, string>> = {},
): Promise<WhyWorld> {
  const [a, b] = [new ScriptedProvider(), new ScriptedProvider()]
  const urls = { a: await a.listen(), b: await b.listen() }
  t.teardown(() => Promise.all([a.close(), b.close()]))
  const gateway = await startGatewayProcess(t, settings(urls), environment)
  const cwd = dirname(gateway.configFile)
  const why = (...words: string[]) =>
    startCommand(t, ['why', ...words, '--config', 'gateway.yaml'], { cwd, environment }).ended
  return {
    gateway,
    a,
    b,
    ask: (body, how = {}) => ask(gateway, body, how),
    why,
    queued: requests =>
      eventually(async () => (await gateway.metric('gateway_requests_queued')) === requests, KEPT_MS),
    async explained(ids) {
      const last = ids.at(-1) ?? ''
      await eventually(async () => (await why(last, '--json')).stdout.includes('"whole"'), KEPT_MS)
      return await many(cwd, ids, environment)
    },
  }
}

async function many(
  cwd: string,
  ids: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<ReadonlyMap<string, Told>> {
  const { execFile } = await import('node:child_process')
  const { promisify } = await import('node:util')
  const command = new URL('../../src/apps/commands/run.ts', import.meta.url).href
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [
      '--disable-warning=ExperimentalWarning',
      '--input-type=module',
      '-e',
      MANY,
      command,
      'gateway.yaml',
      ...ids,
    ],
    { cwd, env: { PATH: process.env['PATH'] ?? '', ...environment }, maxBuffer: 16 * 1024 * 1024 },
  )
  const told = new Map<string, Told>()
  for (const part of stdout.split(/^#json /m).slice(1)) {
    const [id = ''] = part.split('\n', 1)
    const [json = '', lines = ''] = part.slice(id.length + 1).split(`#lines ${id}\n`)
    if (json.trim() === '') continue
    told.set(id, { ...(JSON.parse(json) as Told), lines: lines.trimEnd().split('\n') })
  }
  return told
}

/** With a `Host` header of choice, which `fetch` does not send. */
function ask(
  { url, apiKey }: GatewayProcess,
  body: object,
  { key = apiKey, path = '/v1/responses', headers = {}, raw, host, leaves }: Asking,
): Promise<Asked> {
  const payload = raw ?? JSON.stringify({ input: 'Hi', ...body })
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      url + path,
      {
        method: 'POST',
        agent: false,
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(payload),
          ...(host === undefined ? {} : { host }),
          ...headers,
        },
      },
      response => {
        let text = ''
        const id = String(response.headers['x-request-id'])
        response.setEncoding('utf8').on('data', (more: string) => {
          text += more
        })
        const end = (): void => resolve({ status: response.statusCode ?? 0, id, text })
        response.on('end', end)
        response.on('error', end)
      },
    )
    request.on('error', error => {
      // It was to leave; its id is the one that it has sent itself.
      if (leaves === undefined) reject(error)
      else resolve({ status: 0, id: headers['x-request-id'] ?? '', text: '' })
    })
    void leaves?.then(() => request.destroy())
    request.end(payload)
  })
}
