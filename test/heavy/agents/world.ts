/**
 * One gateway with two scripted providers, and real agents that run against it one after the other: each in a home of
 * its own, without any network but the gateway, with a time limit.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer, type Server as HttpServer, request as httpRequest } from 'node:http'
import { connect, createServer as createTcpServer, type Server } from 'node:net'
import { dirname, isAbsolute, join } from 'node:path'
import { CLIENTS } from '../../../src/apps/commands/connect/clients.ts'
import type { Config } from '../../../src/process/config/settings.ts'
import { openStore } from '../../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID, type Store } from '../../../src/storage/store.ts'
import { startGateway, type TestGateway } from '../../support/gateway.ts'
import { caller } from '../../support/management.ts'
import { tempFolder } from '../../support/temp-folder.ts'
import { installedPackages, plainEnvironment } from '../installed-packages.ts'
import { CONTEXT_LENGTH, type Place, type Program, SMALL_CONTEXT_LENGTH, TASK } from './programs.ts'
import {
  AGENT_FORMATS,
  type AgentFormat,
  type AgentProvider,
  Play,
  startAgentProvider,
  type Trouble,
} from './provider.ts'

const RUN_MAX_MS = 120_000
/** A provider cannot have counted more tokens than the prompt has bytes. */
const FILLING =
  'Cups stand in rows on the long shelf, and each of them has a number of its own below.\n'.repeat(500)
/** So many equal calls with equal results are a circle. */
export const CIRCLE_REPEATS = 3
const CLIENT_LEFT = 499
const DOOR = 'gateway.sock'
const CUT_OFF_DOOR = 'cut-off.sock'
const PRICE = { prompt: '0.0000001', completion: '0.0000004' }

/** @returns the path of the program's executable */
function installed({ package: name, version, bin }: Program): string {
  return join(installedPackages({ [name]: version }), 'node_modules/.bin', bin)
}

export interface AgentRun {
  readonly program: Program
  readonly format: AgentFormat
  readonly trouble: Trouble
  /** The folders of a run before it. */
  readonly place?: Place
  /** Its last session goes on, with the files as they were at first. */
  readonly isAgain?: boolean
  /** Pressed Ctrl-C as soon as a reply hangs. */
  readonly isInterrupted?: boolean
  /** With a model of a small context, and a file that fills most of it. */
  readonly isSmall?: boolean
  /** Each of its requests of the task is cut off once, as soon as its answer begins; its retry has the same key. */
  readonly isCutOff?: boolean
  /** Its provider asks for the same command again and again, and its key stops circles. */
  readonly isCircle?: boolean
}

export interface AgentResult {
  readonly status: number
  readonly output: string
  readonly play: Play
  readonly place: Place
  /** Log lines of requests that were answered with 400 and more; those whose client had left are none. */
  readonly refused: readonly string[]
  readonly ledger: Tokens
  readonly wire: Tokens
  /** Answers that came from an earlier run of the request. */
  readonly replayed: number
  file(name: string): string | null
}

interface Spawning {
  readonly place: Place
  readonly env: Readonly<Record<string, string>>
  /** The socket through which it reaches the gateway. */
  readonly doorFile: string
  readonly interrupted: Promise<void> | null
}

export interface Tokens {
  readonly requests: number
  readonly input: number
  readonly output: number
}

export class AgentWorld {
  readonly gateway: TestGateway
  readonly #store: Store
  readonly #providers: readonly AgentProvider[]
  readonly #door: Server
  readonly #folder: string
  /** A key that stops circles. */
  readonly #circleKey: string

  private constructor(
    gateway: TestGateway,
    store: Store,
    providers: readonly AgentProvider[],
    door: { readonly server: Server; readonly folder: string },
    circleKey: string,
  ) {
    this.gateway = gateway
    this.#store = store
    this.#providers = providers
    this.#door = door.server
    this.#folder = door.folder
    this.#circleKey = circleKey
  }

  static async open(): Promise<AgentWorld> {
    const nothing = new Play({ steps: [], answer: '', proofs: [], mark: '' }, {})
    const first = await startAgentProvider('first', nothing)
    const second = await startAgentProvider('second', nothing)
    const gateway = await startGateway(rowsOf(first.url, second.url))
    const store = await openStore(gateway.storageUrl)
    const { document } = await caller(gateway.url, gateway.managementKey)('POST', '/keys', {
      name: 'circles',
      loops: { action: 'stop', repeats: CIRCLE_REPEATS },
    })
    const places = tempFolder('agents')
    const folder = process.env['AGENTS_RECORD']
    const server =
      folder === undefined ? passing(gateway.port) : recording(gateway.port, folder, gateway.apiKey)
    server.listen(join(places, DOOR))
    await once(server, 'listening')
    const door = { server, folder: places }
    return new AgentWorld(gateway, store, [first, second], door, String(document['key']))
  }

  async close(): Promise<void> {
    this.#door.close()
    await this.#store.close()
    await this.gateway.close()
    for (const provider of this.#providers) provider.close()
  }

  async run(wanted: AgentRun): Promise<AgentResult> {
    const { program, format, trouble } = wanted
    const folder = tempFolder('agent')
    const place: Place = wanted.place ?? {
      home: join(folder, 'home'),
      work: join(folder, 'work'),
      url: 'http://127.0.0.1:8080',
      key: wanted.isCircle === true ? this.#circleKey : this.gateway.apiKey,
      model: `agent/${format}`,
      contextLength: wanted.isSmall === true ? SMALL_CONTEXT_LENGTH : CONTEXT_LENGTH,
    }
    const command = program.steps.at(-1)
    const steps =
      wanted.isCircle === true && command !== undefined
        ? Array<typeof command>(4 * CIRCLE_REPEATS).fill(command)
        : program.steps
    const play = new Play(
      {
        mark: TASK.mark,
        answer: TASK.answer,
        proofs: wanted.isCircle === true ? [] : (program.proofs ?? TASK.proofs),
        steps: steps.map(step => (tools: readonly string[]) => step(tools, place.work)),
      },
      trouble,
    )
    const cutter = wanted.isCutOff === true ? new CutOffDoor(this.gateway.port) : null
    const doorFile = join(this.#folder, cutter === null ? DOOR : CUT_OFF_DOOR)
    await cutter?.listen(doorFile)
    for (const provider of this.#providers) provider.play = play
    const prepared = program.prepare(place, linesOf(program, place))
    if (wanted.place === undefined || wanted.isAgain === true) {
      const filling = wanted.isSmall === true ? FILLING : ''
      for (const [name, content] of Object.entries(TASK.files))
        write(join(place.work, name), name === 'more.txt' ? content + filling : content)
    }
    if (wanted.place === undefined) {
      mkdirSync(place.home, { recursive: true })
      for (const [name, content] of Object.entries(prepared.files))
        write(isAbsolute(name) ? name : join(place.home, name), content)
    }
    const before = { lines: this.gateway.lines.length, ledger: await this.#ledger() }
    const bin = installed(program)
    const { env } = prepared
    if (prepared.before !== undefined && wanted.place === undefined)
      await this.#spawned(bin, prepared.before, { place, env, doorFile, interrupted: null })
    const { status, output } = await this.#spawned(
      bin,
      wanted.isAgain === true ? (prepared.again ?? prepared.words) : prepared.words,
      { place, env, doorFile, interrupted: wanted.isInterrupted === true ? play.hangs() : null },
    )
    await cutter?.close()
    const wire = sumOf(play)
    const ledger = await this.#settled(before.ledger, wire.requests)
    return {
      status,
      output,
      play,
      place,
      refused: this.gateway.lines
        .slice(before.lines)
        .filter(({ status: told }) => typeof told === 'number' && told >= 400 && told !== CLIENT_LEFT)
        .map(line => JSON.stringify(line).slice(0, 600)),
      ledger,
      wire,
      replayed: cutter?.replayed ?? 0,
      file: name =>
        existsSync(join(place.work, name)) ? readFileSync(join(place.work, name), 'utf8') : null,
    }
  }

  async #spawned(
    bin: string,
    words: readonly string[],
    { place, env, doorFile, interrupted }: Spawning,
  ): Promise<{ readonly status: number; readonly output: string }> {
    const inside = join(import.meta.dirname, 'inside.ts')
    const child = spawn(
      'unshare',
      [
        // What it leaves running, such as a daemon, ends with it.
        ...['-rnpf', '--mount-proc', '--kill-child'],
        process.execPath,
        '--disable-warning=ExperimentalWarning',
        inside,
        '8080',
        doorFile,
        bin,
        ...words,
      ],
      { cwd: place.work, env: plainEnvironment({ HOME: place.home, ...env }), detached: true },
    )
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (piece: Buffer) => {
        if (output.length < 200_000) output += piece.toString()
      })
    const kill = (signal: 'SIGINT' | 'SIGKILL'): void => {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, signal)
    }
    const limit = setTimeout(() => {
      output += '\n[ran too long]'
      kill('SIGKILL')
    }, RUN_MAX_MS)
    let isOver = false
    void interrupted?.then(() => {
      if (isOver) return
      kill('SIGINT')
    })
    const [status] = (await once(child, 'close')) as [number | null]
    isOver = true
    clearTimeout(limit)
    return { status: status ?? -1, output }
  }

  async #ledger(): Promise<Tokens> {
    await this.gateway.shipper.ship()
    const sums = await this.#store.ledger.usageSince({ organizationId: DEFAULT_ORGANIZATION_ID, since: '' })
    return {
      requests: sums.requests,
      input: Number(sums.inputTokens),
      output: Number(sums.outputTokens),
    }
  }

  /** The ledger since then, once it has as many records as there were replies; or after some looks. */
  async #settled(since: Tokens, requests: number): Promise<Tokens> {
    let now = await this.#ledger()
    for (let look = 0; look < 50 && now.requests - since.requests < requests; look++) {
      await new Promise(done => setImmediate(done))
      now = await this.#ledger()
    }
    return {
      requests: now.requests - since.requests,
      input: now.input - since.input,
      output: now.output - since.output,
    }
  }
}

function sumOf({ told }: Play): Tokens {
  return {
    requests: told.length,
    input: told.reduce((sum, { input }) => sum + input, 0),
    output: told.reduce((sum, { output }) => sum + output, 0),
  }
}

function linesOf(program: Program, { url, model, contextLength }: Place): readonly string[] {
  const client = CLIENTS.find(({ name }) => name === program.connect)
  if (client === undefined) throw new Error(`sluice connect knows no ${program.connect}`)
  return client.lines({ url, model: { id: model, contextLength, maxOutputTokens: 16_384 } })
}

function write(file: string, content: string): void {
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, content)
}

function rowsOf(first: string, second: string): Pick<Config, 'continueStreams' | 'providers' | 'models'> {
  const row = { apiKey: 'k', format: 'openai-chat' as const, continues: 'last-message' as const }
  return {
    continueStreams: true,
    providers: [
      { slug: 'first', ...row, baseUrl: first },
      { slug: 'second', ...row, baseUrl: second },
    ],
    models: models() as Config['models'],
  }
}

/** Models `agent/FORMAT`: first at the first provider, then in the next format at the second. */
function models(): readonly object[] {
  return AGENT_FORMATS.map((format, at) => ({
    id: `agent/${format}`,
    contextLength: CONTEXT_LENGTH,
    endpoints: [
      { provider: 'first', upstreamModel: 'anthropic.claude-x', format, pricing: PRICE },
      {
        provider: 'second',
        upstreamModel: 'anthropic.claude-x',
        format: AGENT_FORMATS[(at + 1) % AGENT_FORMATS.length],
        pricing: PRICE,
      },
    ],
  }))
}

/** Bytes go to the gateway as they come. */
function passing(port: number): Server {
  return createTcpServer(client => {
    const gateway = connect(port, '127.0.0.1')
    const end = (): void => {
      client.destroy()
      gateway.destroy()
    }
    client.on('error', end).on('close', end).pipe(gateway)
    gateway.on('error', end).on('close', end).pipe(client)
  })
}

/**
 * A proxy on the way that gives each POST a key by its content, as a client does that retries. It cuts off each request
 * of the task once, on both sides, when its answer has begun.
 */
class CutOffDoor {
  /** Answers that the gateway gave for a second time. */
  replayed = 0
  readonly #seen = new Set<string>()
  readonly #server: HttpServer

  constructor(port: number) {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = []
      request.on('data', chunk => chunks.push(chunk))
      request.on('end', () => {
        const body = Buffer.concat(chunks)
        const { method, url: path = '' } = request
        const key = createHash('sha256').update(path).update(body).digest('hex')
        const isCut = method === 'POST' && body.includes(TASK.mark) && !this.#seen.has(key)
        this.#seen.add(key)
        const named = method === 'POST' ? { 'idempotency-key': key } : {}
        const headers = { ...request.headers, ...named }
        const upstream = httpRequest({ port, host: '127.0.0.1', method, path, headers }, reply => {
          if (reply.headers['x-gateway-replayed'] === 'true') this.replayed++
          if (isCut) {
            upstream.destroy()
            response.destroy()
            return
          }
          response.writeHead(reply.statusCode ?? 500, reply.headers)
          reply.pipe(response)
        })
        upstream.on('error', () => response.destroy())
        response.on('close', () => upstream.destroy())
        upstream.end(body)
      })
    })
  }

  async listen(file: string): Promise<void> {
    this.#server.listen(file)
    await once(this.#server, 'listening')
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise(done => this.#server.close(done))
  }
}

/** Bytes go to the gateway as they come, and each HTTP request is also written into a file of the folder. */
function recording(port: number, folder: string, key: string): Server {
  mkdirSync(folder, { recursive: true })
  let count = 0
  return createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', chunk => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks)
      const { method, url: path, headers } = request
      const record = { method, path, headers, body: body.length === 0 ? null : jsonOr(body) }
      const number = String(++count).padStart(3, '0')
      writeFileSync(join(folder, `${number}.json`), JSON.stringify(record, null, 1).replaceAll(key, 'KEY'))
      const upstream = httpRequest({ port, host: '127.0.0.1', method, path, headers }, reply => {
        writeFileSync(join(folder, `${number}.status`), String(reply.statusCode))
        response.writeHead(reply.statusCode ?? 500, reply.headers)
        reply.pipe(response)
      })
      upstream.on('error', () => response.destroy())
      response.on('close', () => upstream.destroy())
      upstream.end(body)
    })
  })
}

function jsonOr(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString())
  } catch {
    return body.toString()
  }
}
