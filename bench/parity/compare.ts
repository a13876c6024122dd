/** Plays every case through two gateways and compares what the clients and the provider received. */
import { broken } from './broken.ts'
import { asksForStream, type Case } from './cases.ts'
import { bodyText, Client, type Question, type Reply, replyText } from './client.ts'
import { shortDiff } from './diff.ts'
import { API_KEY, modelOf, type ParityGateway } from './gateway.ts'
import { normalise } from './normalise.ts'
import type { ReplayProvider } from './provider.ts'

/** Cases at the same time. */
const CONCURRENCY = 2

export interface Difference {
  readonly case: Case
  readonly diff: string
}

/** Text that only replies of AFTER have, and are meant to have. It is left out before they are compared. */
export interface Addition {
  /** Global. */
  readonly pattern: RegExp
  readonly reason: string
}

interface Sides {
  readonly provider: ReplayProvider
  readonly before: ParityGateway
  readonly after: ParityGateway
  readonly additions: readonly Addition[]
  /** Whether one byte of every reply of `after` is changed. */
  readonly breaks: boolean
}

/** Runs `work` for all, a few at a time, in order. @param done called after each */
export async function eachOf<T>(
  all: readonly T[],
  work: (one: T) => Promise<void>,
  done: (count: number) => void,
  concurrency = CONCURRENCY,
): Promise<void> {
  const queue = all.values()
  let count = 0
  const worker = async (): Promise<void> => {
    for (const one of queue) {
      await work(one)
      done(++count)
    }
  }
  await Promise.all(Array.from({ length: concurrency }, worker))
}

export interface Outcome {
  /** In the order of the cases. */
  readonly differences: readonly Difference[]
  /** How often `before` answered with each status; 0: no reply. */
  readonly statuses: ReadonlyMap<number, number>
  /** Of cases that were equal only when they were played again: how they differed at first. */
  readonly repeated: readonly Difference[]
}

/**
 * How often a case is played until both sides are equal: a relayed frame leaves as it came unless the network cut it,
 * and where a reply of more than 64 KiB is cut is chance.
 */
const TRIES = 4

export async function compareSides(
  cases: readonly Case[],
  sides: Sides,
  done: (count: number) => void,
): Promise<Outcome> {
  const client = new Client()
  const differing = new Map<Case, string>()
  const statuses = new Map<number, number>()
  const repeated: Difference[] = []
  const tries = sides.breaks ? 1 : TRIES
  const play = async (one: Case): Promise<void> => {
    const first = await playOnce(client, sides, one)
    statuses.set(first.status, (statuses.get(first.status) ?? 0) + 1)
    let { diff } = first
    for (let tried = 1; tried < tries && diff !== null; tried++)
      diff = (await playOnce(client, sides, one)).diff
    if (diff !== null) differing.set(one, diff)
    else if (first.diff !== null) repeated.push({ case: one, diff: first.diff })
  }
  try {
    await eachOf(cases, play, done)
  } finally {
    client.close()
  }
  const differences = cases.flatMap(one => {
    const diff = differing.get(one)
    return diff === undefined ? [] : [{ case: one, diff }]
  })
  return { differences, statuses, repeated }
}

async function playOnce(
  client: Client,
  { provider, before, after, additions, breaks }: Sides,
  one: Case,
): Promise<{ readonly status: number; readonly diff: string | null }> {
  const [left, right] = await Promise.all([replyOf(client, before, one), replyOf(client, after, one)])
  const foreign = bodyText(one.play.bytes())
  const expected = seen(left, provider.takeAsked('before', one.id), foreign)
  const requests = provider.takeAsked('after', one.id)
  const plainText = (reply: Reply | string): string => seen(reply, requests, foreign)
  const reply =
    breaks && typeof right !== 'string'
      ? broken(right, changed => plainText(changed) !== plainText(right))
      : right
  return {
    status: typeof left === 'string' ? 0 : left.status,
    diff: shortDiff(expected, withoutAdditions(plainText(reply), expected, additions)),
  }
}

/** The text without the additions of which `expected` has none. */
export function withoutAdditions(text: string, expected: string, additions: readonly Addition[]): string {
  return additions.reduce(
    (left, { pattern }) => (expected.search(pattern) === -1 ? left.replace(pattern, '') : left),
    text,
  )
}

/** All that a reply shows and made happen, as text. */
function seen(reply: Reply | string, asked: readonly string[], foreign: string): string {
  const text = typeof reply === 'string' ? reply : replyText(reply)
  return `${normalise(text, foreign)}\n\nThe provider was asked:\n${asked.join('\n\n')}`
}

/** What a client gets; a reply that never comes is a text that says why. */
async function replyOf(client: Client, gateway: ParityGateway, one: Case): Promise<Reply | string> {
  try {
    return await client.ask(questionOf(gateway, one))
  } catch (error) {
    return `no reply: ${error instanceof Error ? error.message : String(error)}`
  }
}

/** Goldens are asked with the metadata header, so that replies with and without it are compared. */
function questionOf({ url, guardedKey }: ParityGateway, one: Case): Question {
  return {
    url: `${url}/responses`,
    headers: {
      authorization: `Bearer ${one.way === 'guarded' ? guardedKey : API_KEY}`,
      'content-type': 'application/json',
      ...(one.play.source === 'golden' ? { 'x-gateway-metadata': 'enabled' } : {}),
    },
    body: {
      model: modelOf(one),
      input: 'Say it again.',
      stream: asksForStream(one),
      ...(one.way === 'healed' ? HEALING : {}),
    },
  }
}

/** A whole answer is looked at by a task worker before it is told. */
const HEALING = {
  plugins: [{ id: 'response-healing' }],
  text: { format: { type: 'json_schema', name: 'anything', schema: { type: 'object' } } },
}
