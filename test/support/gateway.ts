/** A whole serving instance on port 0 with the simulated provider behind it: real sockets, one thread. */
import { createSecretKey, randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { simModels, simProvider } from '../../src/apps/simulator/rows.ts'
import type { Sim } from '../../src/apps/simulator/simulator.ts'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { createLog } from '../../src/base/log/log.ts'
import { hashKey, keyRecord } from '../../src/callers/api-key.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { type LedgerShipper, startShipper } from '../../src/process/services/ledger-shipper.ts'
import { buildServing, type ServeOptions, type Serving } from '../../src/process/wiring/wiring.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import { isObject } from '../../src/protocol/json/schema.ts'
import type { TransportName } from '../../src/protocol/provider.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../src/storage/open.ts'
import { newDatabase } from './new-database.ts'
import { createFaultySim, simFaultModels } from './sim-faults.ts'
import { tempFolder } from './temp-folder.ts'
import { TEST_FRONT } from './test-front.ts'

export interface TestGateway {
  /** Base URL with `/v1`. */
  readonly url: string
  readonly port: number
  readonly apiKey: string
  readonly managementKey: string
  readonly sim: Sim
  readonly serving: Serving
  readonly shipper: LedgerShipper
  readonly storageUrl: string
  /** The ring that seals own credentials, as GATEWAY_VAULT_KEYS has it. */
  readonly vaultKeys: string
  /** Log lines so far, parsed. */
  readonly lines: readonly Record<string, unknown>[]
  /** POST /responses with the API key. */
  respond(body: unknown, init?: { headers?: Record<string, string>; signal?: AbortSignal }): Promise<Response>
  close(): Promise<void>
}

/** Sections of the settings, over the defaults of tests; models and providers are added to the simulated ones. */
type Sections = {
  readonly [Name in keyof Config]?: Config[Name] extends readonly unknown[]
    ? Config[Name]
    : Partial<Config[Name]>
}

export interface TestGatewayOptions extends Omit<Sections, 'storage' | 'proof' | 'tracing'> {
  /** The file with the keys of proofs. Default: one in a new folder. */
  readonly proofKeyFile?: string
  readonly chunkFlush?: boolean
  readonly sandbox?: Partial<Config['tools']['sandbox']>
  readonly storedFiles?: Partial<Config['tools']['files']>
  readonly draw?: () => number
  /** Resumable streams; default: those of this gateway alone. */
  readonly transcripts?: ServeOptions['transcripts']
  readonly clock?: Clock
  /** By which the simulated provider is asked. Default `direct`. */
  readonly transport?: TransportName
  /** Where the database lives; default: a new folder. */
  readonly storageUrl?: string
  /** Traces of requests. Default: there are none. */
  readonly tracing?: ServeOptions['tracing']
  /** Told of each loop of an agent. */
  readonly onLoop?: ServeOptions['onLoop']
  /** Told of each record that was changed. */
  readonly publish?: ServeOptions['publish']
}

/** Ships what this turn of the event loop has recorded too: its records are written at its end. */
function afterTurn(shipper: LedgerShipper): LedgerShipper {
  return {
    folder: shipper.folder,
    get refusal() {
      return shipper.refusal
    },
    watch: see => shipper.watch(see),
    writerEnded: writer => shipper.writerEnded(writer),
    waitingBytes: () => shipper.waitingBytes(),
    close: () => shipper.close(),
    async ship() {
      await new Promise(resolve => setImmediate(resolve))
      return await shipper.ship()
    },
  }
}

/** The settings of a test over those of all: a list replaces a list, a section adds to a section. */
function merged(usual: Config, own: Sections): Config {
  const sections = Object.entries(own).map(([name, section]) => {
    const before: unknown = usual[name as keyof Config]
    const isPart = [section, before].every(each => isObject(each))
    return [name, isPart ? { ...(before as object), ...(section as object) } : section]
  })
  return { ...usual, ...(Object.fromEntries(sections) as Partial<Config>) }
}

export async function startGateway(options: TestGatewayOptions = {}): Promise<TestGateway> {
  const { proofKeyFile, chunkFlush = false, sandbox, storedFiles, transport = 'direct', ...more } = options
  const { draw, transcripts, publish, onLoop, tracing, clock = systemClock, ...rest } = more
  const { storageUrl: database, ...own } = rest
  const sim = createFaultySim()
  const { url: simUrl } = await sim.listen()
  const lines: Record<string, unknown>[] = []
  const log = createLog('trace', {
    write: line => void lines.push(JSON.parse(line) as Record<string, unknown>),
  })
  const defaults = loadConfig([], {})
  const storageUrl = database ?? (await newDatabase())
  const { tools } = merged(defaults, own)
  const config: Config = {
    ...merged(
      {
        ...defaults,
        // In the order of the rows: most tests say which endpoint is asked first.
        routing: { ...defaults.routing, loadBalancing: false },
        // Documents are read in time on a slow machine too.
        files: { ...defaults.files, pdf: { timeoutMs: 30_000 } },
      },
      own,
    ),
    storage: { url: storageUrl },
    threads: { serve: 1, warmUpMs: 0, tasks: 1 },
    proof: { keyFile: proofKeyFile ?? join(tempFolder(), 'proof.key') },
    listen: { ...defaults.listen, front: TEST_FRONT, chunkFlush },
    tools: {
      ...tools,
      sandbox: { ...tools.sandbox, ...sandbox },
      files: { ...tools.files, url: `file:${join(tempFolder(), 'files')}`, ...storedFiles },
    },
    providers: [{ ...simProvider(simUrl), transport }, ...(own.providers ?? [])],
    models: [...simModels(), ...simFaultModels(), ...(own.models ?? [])],
  }
  const vaultKeys = `test:${randomBytes(32).toString('base64')}`
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const store = await openStore(storageUrl)
  await store.keys.add(keyRecord(apiKey, 'inference', { name: 'test', clock }))
  await store.keys.add(keyRecord(managementKey, 'management', { name: 'test', clock }))
  await store.close()
  const shipper = afterTurn(await startShipper({ storageUrl, clock: systemClock, log }))
  const serving = await buildServing({
    spoolFolder: shipper.folder,
    config,
    simUrl: null,
    endUserKey: createSecretKey(randomBytes(32)),
    vaultKeys: parseVaultKeys(vaultKeys),
    log,
    clock,
    ...(transcripts === undefined ? {} : { transcripts }),
    ...(publish === undefined ? {} : { publish }),
    ...(onLoop === undefined ? {} : { onLoop }),
    ...(tracing === undefined ? {} : { tracing }),
    ...(draw === undefined ? {} : { draw }),
  })
  const port = await serving.server.listen('127.0.0.1', 0)
  const url = `http://127.0.0.1:${port}/v1`
  return {
    url,
    port,
    apiKey,
    managementKey,
    sim,
    serving,
    shipper,
    storageUrl,
    vaultKeys,
    lines,
    respond: (body, init = {}) =>
      fetch(`${url}/responses`, {
        method: 'POST',
        headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json', ...init.headers },
        body: JSON.stringify(body),
        ...(init.signal === undefined ? {} : { signal: init.signal }),
      }),
    async close() {
      serving.server.close()
      await serving.close()
      await shipper.close()
      await sim.close()
    },
  }
}

export { hashKey }

/** The response of the terminal event. */
export const finalOf = (events: readonly StreamEvent[]): ResponseResource =>
  (events.at(-1) as StreamEvent & { response: ResponseResource }).response

/** The events of an event stream, after checking its framing: event name = type, [DONE] last and alone. */
export function parseEventStream(text: string): StreamEvent[] {
  const frames = text
    .split('\n\n')
    .map(frame => frame.replace(/^\n+/, ''))
    .filter(frame => frame !== '' && !frame.startsWith(':'))
  const last = frames.pop()
  if (last !== 'data: [DONE]') throw new Error(`the stream ends with ${JSON.stringify(last)}`)
  return frames.map(frame => {
    const match = /^event: (\S+)\ndata: (.*)$/.exec(frame)
    if (match === null) throw new Error(`no proper frame: ${frame}`)
    const event = JSON.parse(match[2] ?? '') as StreamEvent
    if (event.type !== match[1]) throw new Error(`event ${match[1]} carries type ${event.type}`)
    return event
  })
}
