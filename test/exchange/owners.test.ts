/** Who writes an exchange: each field has its owners, and everybody else returns what they make. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const SRC = join(import.meta.dirname, '../../src')
const ASSIGNMENT = /(?<![\w.])(?:this\.#)?exchange\.(\w+) (?:[+\-*]|\?\?|\|\|)?=(?!=)/g

const RESPOND = 'pipeline/respond.ts'
const EMBED = 'pipeline/embed.ts'
const RANK = 'pipeline/routing/rank.ts'
const CHAIN = 'pipeline/plugin-chain.ts'
const ACCOUNT = 'pipeline/accounting/account.ts'
const MODEL_CALL = 'pipeline/turn/model-call.ts'
const LOOP = 'pipeline/turn/tool-loop.ts'
const TURN = 'pipeline/turn/turn.ts'
const TARGET = 'pipeline/turn/answer-target.ts'
const STAGES = 'pipeline/exchange-stages.ts'
const NOTES = 'exchange/reasons.ts'
const CACHE = 'pipeline/response-cache.ts'

const OWNERS: Readonly<Record<string, readonly string[]>> = {
  // The prompt, which each stage rewrites in its turn.
  prompt: [
    RESPOND,
    'pipeline/guard/guard.ts',
    'pipeline/summaries.ts',
    CHAIN,
    'pipeline/tool-calls/server-tools.ts',
    RANK,
    LOOP,
    TURN,
  ],
  masks: ['pipeline/guard/masking.ts'],
  guarding: [STAGES],
  zeroRetention: [STAGES],
  plugins: [RESPOND],
  tools: [RESPOND],
  disabledTools: [RESPOND],
  admitEarly: [RESPOND],
  // Routing.
  strategy: [CHAIN, RANK],
  router: [CHAIN],
  candidates: [RANK, EMBED, RESPOND],
  ranking: [RANK],
  rollout: [RANK],
  prefix: [LOOP],
  // Money. A job at a provider's batch service takes over the reservation.
  overLimit: [ACCOUNT],
  reservation: [ACCOUNT, RESPOND, 'batches/services/job-drafts.ts'],
  trust: [RESPOND],
  sessionSpending: [RESPOND],
  // The reply.
  transport: [RESPOND, EMBED],
  recording: [RESPOND],
  passedOver: [MODEL_CALL],
  lossy: [MODEL_CALL],
  isSubmitted: [MODEL_CALL],
  candidate: [TURN],
  firstTokenMs: [TARGET, LOOP, CACHE],
  finish: [MODEL_CALL, LOOP, EMBED, CACHE],
  cache: [RESPOND],
  repeated: [CACHE],
  turn: [LOOP],
  vectors: [EMBED],
  // Notes.
  toolCalls: [NOTES],
  innerCalls: [NOTES],
}

t.test('each field of an exchange is written by its owners alone', async t => {
  const found = new Map<string, Set<string>>()
  for (const file of globSync('**/*.ts', { cwd: SRC })) {
    for (const [, field = ''] of readFileSync(join(SRC, file), 'utf8').matchAll(ASSIGNMENT)) {
      const files = found.get(field) ?? new Set()
      found.set(field, files.add(file))
    }
  }
  t.same([...found.keys()].toSorted(), Object.keys(OWNERS).toSorted())
  for (const [field, owners] of Object.entries(OWNERS))
    t.same([...(found.get(field) ?? [])].toSorted(), owners.toSorted(), field)
  t.ok(new Set([...found.values()].flatMap(files => [...files])).size <= 18)
})
