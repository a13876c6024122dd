/** Sends bodies of growing size to a gateway, and finds the functions whose work grows faster than the body. */
import { createServer } from 'node:http'
import { type Profiler, Session } from 'node:inspector'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Test } from 'tap'
import { hashKey, startGateway, type TestGateway } from './gateway.ts'
import { listening } from './listening.ts'

// Counts the work of the product's own code: how often each block of each function ran, as V8 counts for
// coverage. The counts of one request are the same on every machine. Loops inside built-in functions are not
// in them.

const ROOT = `${pathToFileURL(join(import.meta.dirname, '../../src')).href}/`

/** Runs of all blocks of a function, by its file and name. */
type Work = ReadonlyMap<string, number>

class WorkCounter {
  readonly #session = new Session()

  constructor() {
    this.#session.connect()
    this.#session.post('Profiler.enable')
    this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
  }

  /** The work since the last call. */
  take(): Work {
    const work = new Map<string, number>()
    this.#session.post('Profiler.takePreciseCoverage', (error, { result }) => {
      if (error !== null) throw error
      for (const script of result) if (script.url.startsWith(ROOT)) addWork(work, script)
    })
    return work
  }

  close(): void {
    this.#session.post('Profiler.stopPreciseCoverage')
    this.#session.disconnect()
  }
}

function addWork(work: Map<string, number>, { url, functions }: Profiler.ScriptCoverage): void {
  for (const { functionName, ranges } of functions) {
    const [whole] = ranges
    const runs = ranges.reduce((sum, { count }) => sum + count, 0)
    if (whole === undefined || runs === 0) continue
    const name = `${url.slice(ROOT.length)} ${functionName === '' ? 'anonymous' : functionName}@${whole.startOffset}`
    work.set(name, (work.get(name) ?? 0) + runs)
  }
}

/** Elements of the smallest body. */
const COUNT = 64
/** Runs of a function that are worth a look: a quadratic one has thousands. */
const RUNS_MIN = 2_000
/** Growth of the runs where the elements double. Linear work doubles, quadratic work grows fourfold. */
const GROWTH_MAX = 3

export const UPSTREAMS = [
  'openai-chat',
  'openai-responses',
  'anthropic-messages',
  'google-gemini',
  'bedrock-converse',
] as const

const CONTENT = 'text'
const USAGE = { input_tokens: 1, output_tokens: 1, total_tokens: 2 }
/** The end of a path, and what the provider answers there. */
const ANSWERS: readonly (readonly [RegExp, object])[] = [
  [
    /\/responses$/,
    {
      id: 'r',
      object: 'response',
      status: 'completed',
      model: 'x',
      output: [
        {
          type: 'message',
          id: 'm',
          role: 'assistant',
          status: 'completed',
          content: [{ type: 'output_text', text: CONTENT, annotations: [] }],
        },
      ],
      usage: USAGE,
    },
  ],
  [
    /\/chat\/completions$/,
    {
      id: 'c',
      object: 'chat.completion',
      model: 'x',
      choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: CONTENT } }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    },
  ],
  [
    /\/messages$/,
    {
      id: 'm',
      type: 'message',
      role: 'assistant',
      model: 'x',
      content: [{ type: 'text', text: CONTENT }],
      stop_reason: 'end_turn',
      usage: USAGE,
    },
  ],
  [
    /:generateContent$/,
    {
      candidates: [{ content: { role: 'model', parts: [{ text: CONTENT }] }, finishReason: 'STOP' }],
      usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
    },
  ],
  [
    /\/converse$/,
    {
      output: { message: { role: 'assistant', content: [{ text: CONTENT }] } },
      stopReason: 'end_turn',
      usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 },
    },
  ],
  [/\/embeddings$/, { object: 'list', model: 'x', data: [], usage: { prompt_tokens: 1, total_tokens: 1 } }],
]

export interface GrowingWorld {
  readonly gateway: TestGateway
  readonly counter: WorkCounter
}

/** A gateway whose models `acme/FORMAT` are at a provider of each format, and whose key has a guardrail. */
export async function startGrowing(t: Test): Promise<GrowingWorld> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      const path = new URL(request.url ?? '', 'http://x').pathname
      const [, answer] = ANSWERS.find(([end]) => end.test(path)) ?? []
      response.writeHead(answer === undefined ? 404 : 200, { 'content-type': 'application/json' })
      response.end(JSON.stringify(answer ?? {}))
    })
  })
  const { url: baseUrl } = await listening(server)
  const gateway = await startGateway({
    tools: { mcp: { allowPrivate: true } },
    providers: UPSTREAMS.map(format => ({ slug: format, name: format, format, baseUrl, apiKey: 'x' })),
    models: [
      ...UPSTREAMS.map(format => ({
        id: `acme/${format}`,
        contextLength: 10_000_000,
        endpoints: [{ provider: format, upstreamModel: 'x' }],
      })),
      {
        id: 'acme/embed',
        outputModalities: ['embeddings' as const],
        endpoints: [{ provider: 'openai-chat', upstreamModel: 'x', format: 'openai-embeddings' as never }],
      },
    ] as never,
  })
  const manage = async (
    path: string,
    body: object,
  ): Promise<{ readonly data?: { readonly id?: string } }> => {
    const answer = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    if (!answer.ok) throw new Error(await answer.text())
    return (await answer.json()) as { readonly data?: { readonly id?: string } }
  }
  const email = [{ slug: 'email', action: 'redact' }]
  const guardrail = await manage('/guardrails', { name: 'of the test', content_filter_builtins: email })
  await manage(`/guardrails/${guardrail.data?.id}/assignments/keys`, {
    key_hashes: [hashKey(gateway.apiKey)],
  })
  const counter = new WorkCounter()
  t.teardown(async () => {
    counter.close()
    await gateway.close()
    server.closeAllConnections()
    server.close()
  })
  return { gateway, counter }
}

/** The status of the answer to a body. */
export async function statusOf({ gateway }: GrowingWorld, path: string, body: unknown): Promise<number> {
  const answer = await fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  await answer.arrayBuffer()
  return answer.status
}

/** Functions whose work grows faster than the body, with their runs at each size. */
export async function growing(
  counter: WorkCounter,
  send: (count: number) => Promise<unknown>,
): Promise<readonly string[]> {
  const at = async (count: number): Promise<Work> => {
    await send(count)
    return counter.take()
  }
  const [some, twice] = [await at(COUNT), await at(2 * COUNT)]
  const suspect = suspects(some, twice)
  if (suspect.length === 0) return []
  const more = await at(4 * COUNT)
  // A function that begins to run at some size is none that grows.
  return suspects(twice, more)
    .filter(name => suspect.includes(name))
    .map(name => `${name}: ${some.get(name)}, ${twice.get(name)}, ${more.get(name)}`)
}

export const LARGEST = 4 * COUNT

function suspects(some: Work, twice: Work): readonly string[] {
  return (
    [...twice]
      // The simulated provider is no part of a request.
      .filter(
        ([name, runs]) =>
          !name.startsWith('sim/') && runs >= RUNS_MIN && runs > GROWTH_MAX * (some.get(name) ?? 0),
      )
      .map(([name]) => name)
  )
}
