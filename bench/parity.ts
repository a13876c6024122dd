/**
 * `npm run parity -- BEFORE AFTER`: plays every recorded provider reply and every golden through the gateways of two
 * revisions, as real processes, and compares the bytes that clients receive and the requests that the provider
 * receives. `npm run parity -- --dialects REV`: plays the same replies through Responses, chat completions and Messages
 * of one revision, live and as batch requests.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { RECORDINGS_MISSING, recordingsPresent } from '../test/support/recordings.ts'
import { type Case, casesOf, labelOf, plays } from './parity/cases.ts'
import { type Addition, compareSides, type Difference } from './parity/compare.ts'
import { casesIn, compareDialects, type DialectCase, dialectCases } from './parity/dialects.ts'
import { type ParityGateway, startParityGateway } from './parity/gateway.ts'
import { caseProgress } from './parity/progress.ts'
import { ReplayProvider } from './parity/provider.ts'
import { dialectPage, type Intended, parityPage, sorted } from './parity/report.ts'
import { endOnSignals, stopAll } from './processes.ts'
import { runnable } from './revision.ts'

/** Differences that are meant: `pattern` matches the case's name, a line break, and the difference. */
const INTENDED: readonly Intended[] = [
  {
    pattern: /sent a body that is not a (?:response|chat completion)/,
    reason: 'the error says what was expected',
  },
  {
    pattern:
      /^recording openai-responses\/\S*(?:file-search-tool-|background-mode-streaming-|mcp-list-tools-stream|mcp-server-tool-stream|openai-compaction-1|openai-mcp-tool-1|openai-shell-skills-1)\S* as openai-responses, (?:streamed|healed)\n/,
    reason: 'a relayed frame that gets another number leaves with our order of keys, and without padding',
  },
  {
    pattern:
      /^recording openai-chat\/groq\.pai\.groq-model-web-search-tool-stream\.sse as openai-chat, (?:streamed|healed)\n/,
    reason: 'a relayed text keeps the escapes of the provider',
  },
  {
    pattern:
      /compaction[^\n]* as (?:openai-responses|anthropic-messages), \w+\n[\s\S]*"encrypted_content":"(?:gw-compaction-|"})/,
    reason: 'summaries of a provider are sealed with the name of who made them',
  },
  {
    pattern: /^golden [^\n]*\n[\s\S]*(?:because of its content policy|sent a reply in an unknown format)/,
    reason: 'errors in plainer words',
  },
]

/** Headers are compared in lower case. */
const ADDITIONS: readonly Addition[] = [
  { pattern: /^x-request-id: .*\n/gm, reason: 'every reply names its request' },
  {
    pattern: /(?<=^access-control-expose-headers: .*)X-Request-Id, /gm,
    reason: 'scripts of a browser may read the name of the request',
  },
  {
    pattern:
      /(?<=^access-control-expose-headers: .*)(?:X-RateLimit-(?:Limit|Remaining|Reset)-Tokens, |Anthropic-RateLimit-Tokens-(?:Limit|Remaining|Reset), |, Traceresponse)/gm,
    reason: 'and the limits of tokens, and its trace',
  },
]

const ROOT = join(import.meta.dirname, '..')
const SHOWN = 20
const USAGE = `npm run parity -- BEFORE AFTER [--only TEXT] [--show N] [--break]
npm run parity -- --dialects REV [--only TEXT] [--show N]

  BEFORE, AFTER, REV  revisions git knows, or folders with sources and packages; . is the working tree
  --only              cases whose name contains this text
  --show              differences that are printed; without it ${SHOWN}
  --break             changes one byte of every reply of AFTER: each must be reported
  --dialects          compares Responses with the other dialects and with batches instead of two revisions
`

function settings() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      only: { type: 'string' },
      show: { type: 'string' },
      break: { type: 'boolean' },
      dialects: { type: 'boolean' },
    },
  })
  const dialects = values.dialects === true
  const [before, after = before] = positionals
  if (before === undefined || after === undefined || positionals.length !== (dialects ? 1 : 2))
    throw new Error(USAGE)
  return {
    before,
    after,
    dialects,
    only: values.only ?? '',
    shown: Number(values.show ?? SHOWN),
    breaks: values.break === true,
  }
}

async function main(): Promise<boolean> {
  const wanted = settings()
  if (!recordingsPresent) process.stderr.write(`${RECORDINGS_MISSING}\n`)
  const played = wanted.dialects
    ? dialectCases(plays().filter(one => labelOf(one).includes(wanted.only)))
    : []
  const cases = wanted.dialects
    ? casesIn(played)
    : casesOf(plays()).filter(one => one.label.includes(wanted.only))
  if (cases.length === 0) throw new Error(`no case has ${wanted.only} in its name`)
  const folder = mkdtempSync(join(tmpdir(), 'sluice-parity-'))
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  const provider = new ReplayProvider(new Map(cases.map(one => [one.id, one.play])))
  const providerUrl = await provider.listen()
  const gateway = (revision: string, side: string) =>
    startParityGateway(runnable(ROOT, revision, folder), side, folder, providerUrl, cases)
  try {
    if (wanted.dialects) return await dialects(played, await gateway(wanted.after, 'after'), wanted.shown)
    const [before, after] = await Promise.all([
      gateway(wanted.before, 'before'),
      gateway(wanted.after, 'after'),
    ])
    const sides = { provider, before, after, additions: ADDITIONS, breaks: wanted.breaks }
    const outcome = await compareSides(cases, sides, caseProgress(cases.length))
    process.stdout.write(parityPage(cases, outcome, INTENDED, wanted.shown))
    for (const { reason } of ADDITIONS) process.stdout.write(`may be new: ${reason}\n`)
    const { differences } = outcome
    return wanted.breaks ? tellBroken(cases, differences) : sorted(differences, INTENDED).unmeant.length === 0
  } finally {
    await Promise.all([provider.close(), stopAll()])
  }
}

/** @returns whether all dialects tell the same of every reply, live and in batches */
async function dialects(
  cases: readonly DialectCase[],
  gateway: ParityGateway,
  shown: number,
): Promise<boolean> {
  const results = await compareDialects(cases, gateway, caseProgress(cases.length))
  process.stdout.write(dialectPage(results, shown))
  const broken = cases.filter(({ whole }) => whole === null).length
  process.stdout.write(`${broken} streams break off or fail, so they are no whole replies\n`)
  return results.every(one => one.differences.length === 0)
}

/** The run is worth something only when it sees every change. @throws Error when it missed one */
function tellBroken(cases: readonly Case[], differences: readonly Difference[]): boolean {
  const reportedCases = new Set(differences.map(one => one.case))
  const missed = cases.filter(one => !reportedCases.has(one))
  if (missed.length > 0)
    throw new Error(`${missed.length} changed replies were not reported: ${missed[0]?.label}, …`)
  process.stdout.write(`self-check: all ${cases.length} changed replies were reported\n`)
  return false
}

endOnSignals()

try {
  if (!(await main())) process.exitCode = 1
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 2
}
