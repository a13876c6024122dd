/**
 * The same reply in pieces of 1 byte and of 16,384, over every way on which the gateway reads from other servers: small
 * pieces may not cost many times as much. A sender chooses the size of its pieces, and each has a fixed cost.
 */
import t, { type Test } from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { fileId } from '../../../src/base/ids.ts'
import { createS3Contents } from '../../../src/features/files/s3.ts'
import { createMcpConnection, createOldServers } from '../../../src/features/tools/mcp/connection.ts'
import { McpLibrary } from '../../../src/features/tools/mcp/library.ts'
import { callEngine } from '../../../src/features/tools/web/call-engine.ts'
import { TRANSPORTS } from '../../../src/protocol/provider.ts'
import { jsonLines } from '../../../src/providers/upstream/json-lines.ts'
import { createPageFetcher, resolverOf } from '../../../src/providers/upstream/pages/fetch-page.ts'
import { ReadTurns } from '../../../src/providers/upstream/read-turns.ts'
import type { UpstreamRequest } from '../../../src/providers/upstream/transport.ts'
import { wholeReply } from '../../../src/providers/upstream/whole-reply.ts'
import { startGateway } from '../../support/gateway.ts'
import { NO_SHEDDING } from '../../support/gateway-process.ts'
import { setUp } from './calls.ts'
import { startSender } from './pieces/sender.ts'

t.setTimeout(600_000)

const CONTROL_BYTES = 16_384
/** A server may send any number of the latter. */
const REFUSED_BYTES = 1
const SMALL_BYTES = [REFUSED_BYTES, 24]
const CPU_RATIO = 10
const MEMORY_RATIO = 4
/** Below these, a busy machine makes the figures. Unjoined and uncounted, single bytes over undici took twice this. */
const CPU_FLOOR_MS = 300
const MEMORY_FLOOR_BYTES = 64 * 1024 * 1024
/** The least of several runs counts. */
const RUNS = 3
const LIMITS = { headersTimeoutMs: 60_000, idleTimeoutMs: 60_000 }
const KEY = 'one'
const live = () => new AbortController().signal

interface Way {
  readonly name: string
  /** Reads a reply that comes in pieces of this size to its end. Rejects if it is refused. */
  readonly read: (pieceBytes: number) => Promise<unknown>
}

const FORMATS = {
  chat: 'openai-chat',
  responses: 'openai-responses',
  messages: 'anthropic-messages',
  gemini: 'google-gemini',
  bedrock: 'bedrock-converse',
} as const

/** The reply names of a format, and if the request asks for a stream. */
const KINDS: readonly (readonly [reply: string, format: keyof typeof FORMATS, isStreamed: boolean])[] = [
  ...Object.keys(FORMATS).flatMap(name => {
    const format = name as keyof typeof FORMATS
    return [[`${format}-stream`, format, true] as const, [`${format}-whole`, format, false] as const]
  }),
  ['chat-comments', 'chat', true],
]

/** Replies of providers through a whole gateway. */
async function providerWays(t: Test, sender: string): Promise<readonly Way[]> {
  const sizes = [...SMALL_BYTES, CONTROL_BYTES]
  const rows = TRANSPORTS.flatMap(transport =>
    sizes.flatMap(bytes =>
      [
        ...KINDS.map(([reply, format]) => [reply, FORMATS[format]] as const),
        ['embeddings', 'openai-embeddings'] as const,
      ].map(([reply, format]) => ({
        slug: `${transport}-${bytes}-${reply}`,
        format,
        baseUrl: `${sender}/${bytes}/${reply}`,
        apiKey: 'k',
        transport,
      })),
    ),
  )
  const gateway = await startGateway({
    limits: { ...NO_SHEDDING, maxBufferedBytes: 256 * 1024 * 1024 },
    providers: rows as never,
    models: rows.map(({ slug }) => ({
      id: `pieces/${slug}`,
      endpoints: [{ provider: slug }],
      ...(slug.endsWith('embeddings') ? { outputModalities: ['embeddings'] } : {}),
    })) as never,
  })
  t.teardown(() => gateway.close())
  const ask = async (path: string, body: object): Promise<void> => {
    const reply = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    const text = await reply.text()
    if (!reply.ok || /"(?:status|type)":"(?:response\.)?failed"/.test(text)) throw new Error(text.slice(-500))
  }
  return TRANSPORTS.flatMap(transport => [
    ...KINDS.map(([reply, , stream]) => ({
      name: `provider ${reply}, ${transport}`,
      read: (bytes: number) =>
        ask('/responses', { model: `pieces/${transport}-${bytes}-${reply}`, input: 'hi', stream }),
    })),
    {
      name: `provider embeddings, ${transport}`,
      read: (bytes: number) =>
        ask('/embeddings', {
          model: `pieces/${transport}-${bytes}-embeddings`,
          input: Array.from({ length: 16 }, () => 'hi'),
        }),
    },
  ])
}

/** What else the gateway reads over the transports of providers: documents, result files of batch services, engines. */
function transportWays(t: Test, sender: string): readonly Way[] {
  return TRANSPORTS.flatMap(by => {
    const { client } = setUp(t, { maxResponseBytes: 64 * 1024 * 1024 }, by)
    const request = (path: string): UpstreamRequest => ({
      url: new URL(`${sender}${path}`),
      method: 'GET',
      headers: {},
      body: '',
      ...LIMITS,
    })
    return [
      {
        name: `document, ${by}`,
        read: (bytes: number) =>
          wholeReply(client, request(`/${bytes}/document`), { maxBytes: 64 * 1024 * 1024, signal: live() }),
      },
      {
        name: `result file of a batch service, ${by}`,
        async read(bytes: number) {
          const pages = jsonLines(client, request(`/${bytes}/lines`), {
            maxLineBytes: 1_000_000,
            accepts: () => true,
            pageLines: 1_000,
            pageBytes: 1_000_000,
            signal: live(),
            onSkipped: () => undefined,
          })
          for await (const page of pages) if (page.length === 0) throw new Error('an empty page')
        },
      },
      {
        name: `search engine, ${by}`,
        read: (bytes: number) =>
          callEngine(
            client,
            { keyHeader: null } as never,
            { name: 'own', baseUrl: `${sender}/${bytes}/search`, apiKey: null },
            { method: 'GET', path: '/', body: '' } as never,
            { timeoutMs: 60_000, signal: live() },
          ),
      },
    ]
  })
}

function mcpWays(sender: string): readonly Way[] {
  const rules = { allowHttp: true, allowPrivate: true }
  const library = new McpLibrary()
  const deps = {
    clock: systemClock,
    library,
    rules,
    resolve: resolverOf(rules),
    turns: new ReadTurns(),
    oldServers: createOldServers(systemClock),
  }
  return ['mcp-json', 'mcp-event', 'mcp-comments'].map(name => ({
    name,
    async read(bytes: number) {
      const url = new URL(`${sender}/${bytes}/${name}/`)
      const connection = createMcpConnection(deps, { url, headers: {}, secrets: [] })
      try {
        const tool = { name: 'tool', input_schema: { type: 'object' } }
        await connection.call(tool as never, {}, { limitMs: 60_000, signal: live() })
      } finally {
        connection.close(false)
      }
    },
  }))
}

function pageWay(sender: string): Way {
  const fetchPage = createPageFetcher({
    clock: systemClock,
    allowHttp: true,
    allowPrivate: true,
    maxBytes: 8_000_000,
    timeoutMs: 60_000,
  })
  return {
    name: 'page',
    read: bytes => fetchPage(`${sender}/${bytes}/page`, { types: ['text/plain'], signal: live(), key: KEY }),
  }
}

function bucketWay(sender: string): Way {
  return {
    name: 'object of a bucket',
    async read(bytes) {
      const contents = createS3Contents(
        {
          bucket: String(bytes),
          prefix: 'object',
          endpoint: sender,
          region: 'r',
          accessKeyId: 'a',
          secretAccessKey: 's',
        },
        { clock: systemClock, proxyOf: () => null },
      )
      for await (const part of contents.read(fileId()))
        if (part.length === 0) throw new Error('an empty part')
    },
  }
}

interface Cost {
  readonly cpuMs: number
  readonly bytes: number
  readonly isRefused: boolean
}

const usedBytes = (): number => {
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

/** Of this thread alone: the sender has its own. */
async function costOf({ read }: Way, pieceBytes: number): Promise<Cost> {
  const before = usedBytes()
  let most = before
  const sampling = setInterval(() => {
    most = Math.max(most, usedBytes())
  }, 20)
  const start = process.threadCpuUsage()
  const isRefused = await read(pieceBytes).then(
    () => false,
    () => true,
  )
  const { user, system } = process.threadCpuUsage(start)
  clearInterval(sampling)
  return { cpuMs: (user + system) / 1000, bytes: Math.max(most, usedBytes()) - before, isRefused }
}

function isDear(cost: Cost, control: Cost): boolean {
  return (
    cost.cpuMs > Math.max(CPU_FLOOR_MS, control.cpuMs * CPU_RATIO) ||
    cost.bytes > Math.max(MEMORY_FLOOR_BYTES, control.bytes * MEMORY_RATIO)
  )
}

function shown({ cpuMs, bytes, isRefused }: Cost): string {
  return `${Math.round(cpuMs)} ms, ${Math.round(bytes / 1024 / 1024)} MiB${isRefused ? ', refused' : ''}`
}

t.test('a reply in small pieces costs no more than a few times as much as in large ones', async t => {
  const sender = await startSender(t)
  const ways = [
    ...(await providerWays(t, sender)),
    ...transportWays(t, sender),
    pageWay(sender),
    ...mcpWays(sender),
    bucketWay(sender),
  ]
  for (const way of ways) {
    // Compiles what the way needs.
    await way.read(CONTROL_BYTES)
    const control = await costOf(way, CONTROL_BYTES)
    const told = [`${way.name}: ${shown(control)}`]
    let isFine = !control.isRefused
    for (const bytes of SMALL_BYTES) {
      let cost = await costOf(way, bytes)
      for (let runs = 1; runs < RUNS && isDear(cost, control); runs++) cost = await costOf(way, bytes)
      isFine &&= !isDear(cost, control) && cost.isRefused === (bytes === REFUSED_BYTES)
      told.push(`in pieces of ${bytes}: ${shown(cost)}`)
    }
    t.ok(isFine, told.join('; '))
  }
  t.comment(`${ways.length} ways`)
})
