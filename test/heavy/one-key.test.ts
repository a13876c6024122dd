/**
 * One key floods, another one asks for ordinary things: nothing of the other is refused, and its slowest requests are
 * hardly slower. Quiet and flooded rounds take turns, so that a machine that gets busier is not taken for the gateway.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { deflateSync } from 'node:zlib'
import t from 'tap'
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts'
import { writePdf } from '../support/pdf.ts'
import { openProbe, pause, percentile } from '../support/stream-probe.ts'
import type { FloodOrder } from './flood.ts'
import { startProviders } from './provider-process.ts'

t.setTimeout(600_000)

const ROUNDS = Number(process.env['ONE_KEY_ROUNDS'] ?? 3)
const ROUND_MS = 6_000
/** Requests of the other key under way at once. */
const CLIENTS = 4

const FLOOD = new URL('./flood.ts', import.meta.url)

/** Beside the flood, the slowest requests may take twice as long as without it, and this much more. */
const MARGIN_MS = 5

/** 20 tokens, 20 ms apart. */
const ORDINARY = {
  model: 'sim/write-20-20',
  input: 'What is the weather like today? '.repeat(20),
  stream: true,
}

const file = (bytes: Uint8Array) => ({
  model: 'sim/echo',
  input: [
    {
      type: 'message',
      role: 'user',
      content: [
        { type: 'input_text', text: 'What does it say?' },
        {
          type: 'input_file',
          filename: 'a.pdf',
          file_data: `data:application/pdf;base64,${Buffer.from(bytes).toString('base64')}`,
        },
      ],
    },
  ],
  plugins: [{ id: 'file-parser', pdf: { engine: 'pdf-text' } }],
})

/** 28 MB of drawing from some 80 KB: a minute of work for whoever reads it to its end. */
const DRAWING = {
  dictionary: '/Filter /FlateDecode',
  bytes: deflateSync(Buffer.from('0 0 m 9 9 l S\n'.repeat(2_000_000))),
}

interface Flood {
  readonly body: unknown
  readonly atOnce: number
  /** What the other key asks meanwhile. */
  readonly other: object
  /** A pattern of the flooding key's own guardrail. */
  readonly pattern?: string
}

/** Texts that five detectors and a pattern look at. */
const GUARDED: readonly string[] = ['guarded texts of 1 MB', 'texts that its own pattern is slow on']

const FLOODS: Readonly<Record<string, Flood>> = {
  'bodies of 19 MB': {
    body: { model: 'sim/write-3', input: 'x'.repeat(19 * 1024 * 1024) },
    atOnce: 4,
    other: ORDINARY,
  },
  'documents that take a minute': {
    body: file(writePdf({ pages: ['', 'two'], stream: DRAWING })),
    atOnce: 24,
    other: file(writePdf({ pages: ['One page'] })),
  },
  'guarded texts of 1 MB': {
    body: { model: 'sim/write-3', input: `${'Call 555 0100, or write to nobody. '.repeat(30_000)}` },
    atOnce: 12,
    other: ORDINARY,
  },
  'texts that its own pattern is slow on': {
    body: { model: 'sim/write-3', input: `${'abbab'.repeat(2_000)}cd` },
    atOnce: 12,
    other: ORDINARY,
    // Hundreds of states are alive at every character: a tenth of a second and more for each text.
    pattern: 'a[abc]{900}d',
  },
}

/** Rules for the texts of every key: five detectors, and a pattern. */
async function guardAll({ url }: GatewayProcess, managementKey: string): Promise<void> {
  const headers = { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' }
  const listed = (await (await fetch(`${url}/v1/guardrails`, { headers })).json()) as {
    data: { id: string; is_workspace_default: boolean }[]
  }
  const id = listed.data.find(each => each.is_workspace_default)?.id
  const body = JSON.stringify({
    content_filter_builtins: ['email', 'phone', 'ssn', 'credit-card', 'ip-address'].map(slug => ({
      slug,
      action: 'flag',
    })),
    content_filters: [{ pattern: 'EMP-[0-9]{4,8}', action: 'flag', label: 'number' }],
  })
  const reply = await fetch(`${url}/v1/guardrails/${id}`, { method: 'PATCH', headers, body })
  if (!reply.ok) throw new Error(await reply.text())
}

/** A further key, and a guardrail of its own where there is a pattern. */
async function createKey(
  { url }: GatewayProcess,
  managementKey: string,
  pattern: string | undefined,
): Promise<string> {
  const create = async (path: string, body: object): Promise<unknown> => {
    const reply = await fetch(`${url}/v1${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    if (!reply.ok) throw new Error(await reply.text())
    return reply.json()
  }
  const made = (await create('/keys', { name: 'another' })) as { key: string; data: { hash: string } }
  if (pattern !== undefined) {
    const content_filters = [{ pattern, action: 'flag', label: 'slow' }]
    const { data } = (await create('/guardrails', { name: 'slow', content_filters })) as {
      data: { id: string }
    }
    await create(`/guardrails/${data.id}/assignments/keys`, { key_hashes: [made.data.hash] })
  }
  return made.key
}

for (const [name, { body, atOnce, other, pattern }] of Object.entries(FLOODS)) {
  t.test(`one key sends ${name}`, async t => {
    const providers = await startProviders(t)
    const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
    const gateway = await startGatewayProcess(
      t,
      providers.settings({ sim: ['write-20-20', 'write-3', 'echo'] }),
      { GATEWAY_MANAGEMENT_KEY: managementKey },
    )
    const { port, apiKey } = gateway
    if (GUARDED.includes(name)) await guardAll(gateway, managementKey)
    const flooder = { port, apiKey: await createKey(gateway, managementKey, pattern) }
    const statuses = new Map<number, number>()
    /** Milliseconds of each request of the other key. */
    const ask = async (): Promise<number[]> => {
      const untilMs = performance.now() + ROUND_MS
      const tookMs: number[] = []
      const client = async () => {
        while (performance.now() < untilMs) {
          const sinceMs = performance.now()
          const { status, body: said } = await openProbe(other, { port, apiKey }).result
          tookMs.push(performance.now() - sinceMs)
          statuses.set(status, (statuses.get(status) ?? 0) + 1)
          if (status !== 200) t.comment(said.slice(0, 200))
          await pause(50)
        }
      }
      await Promise.all(Array.from({ length: CLIENTS }, client))
      return tookMs
    }
    const flooded: unknown[] = []
    const order: FloodOrder = { ...flooder, text: JSON.stringify(body), atOnce }
    await ask()
    const rounds: { readonly quiet: number[]; readonly busy: number[] }[] = []
    for (let round = 0; round < ROUNDS; round++) {
      const quiet = await ask()
      const flood = new Worker(FLOOD, { workerData: order })
      await pause(500)
      const busy = await ask()
      const statusesOfFlood = once(flood, 'message')
      flood.postMessage('end')
      flooded.push(...(await statusesOfFlood))
      await flood.terminate()
      rounds.push({ quiet, busy })
    }
    const p = (values: readonly number[], part: number) => percentile(values, part).toFixed(0)
    for (const { quiet, busy } of rounds) {
      t.comment(
        `quiet ${quiet.length}: p50 ${p(quiet, 0.5)}, p99 ${p(quiet, 0.99)} ms; ` +
          `flooded ${busy.length}: p50 ${p(busy, 0.5)}, p99 ${p(busy, 0.99)} ms`,
      )
    }
    t.comment(`the flood was answered ${JSON.stringify(flooded)}`)
    t.same([...statuses.keys()], [200], 'nothing of the other key is refused')
    const worst = (way: 'quiet' | 'busy') =>
      percentile(
        rounds.flatMap(round => round[way]),
        0.99,
      )
    t.ok(
      worst('busy') <= 2 * worst('quiet') + MARGIN_MS,
      `p99 ${worst('quiet').toFixed(0)} ms alone, ${worst('busy').toFixed(0)} ms beside the flood`,
    )
  })
}
