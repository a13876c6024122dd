/**
 * Kills the running product under load again and again, and compares its ledger with what callers saw: every answer
 * whose end reached a caller has exactly one usage record, with the cost reported to the caller.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { Agent, type IncomingMessage, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as delay } from 'node:timers/promises'
import type { Test } from 'tap'
import { readSpool, spoolFiles } from '../../../src/storage/spool/spool.ts'
import { parseLines } from '../../../src/storage/spool/usage-line.ts'
import { NO_SHEDDING } from '../../support/gateway-process.ts'
import { MAIN, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from '../../support/product.ts'

const CALLERS = 20
/** So many answers have ended before the kill, so that every round has something to lose. */
const ENDED_MIN = 10
/** The kill comes this long after them, at random. */
const LIFE_MAX_MS = 600

/** What one caller was told, by the time the connection ended. */
interface Answer {
  readonly id: string
  readonly status: number
  /** The end of the answer was seen, at least its beginning. */
  ended: boolean
  /** USD; null when the end did not arrive whole. */
  cost: number | null
}

interface KillTotals {
  readonly rounds: number
  /** Answers whose end was seen. */
  ended: number
  /** Answers that were cut off by the kill. */
  cut: number
  /** Requests that a busy thread did not admit; they have no record. */
  turnedAway: number
  records: number
  lost: number
  double: number
  wrongCost: number
  /** Records that were still unshipped at a kill. */
  unshipped: number
}

export async function killRounds(t: Test, rounds: number): Promise<KillTotals> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-kill-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  // Without an answer that is recorded there is nothing to lose.
  writeFileSync(join(folder, 'gateway.yaml'), JSON.stringify({ limits: NO_SHEDDING }))
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  const totals: KillTotals = {
    rounds,
    ended: 0,
    cut: 0,
    turnedAway: 0,
    records: 0,
    lost: 0,
    double: 0,
    wrongCost: 0,
    unshipped: 0,
  }
  const all = new Map<string, Answer>()
  for (let round = 0; round < rounds; round++) {
    const gateway = await start(t, folder, apiKey)
    await shippedLeftovers(folder)
    if (round > 0) check(folder, all, totals)
    const answers = await loadUntilDeath(gateway.child, gateway.url, apiKey)
    for (const answer of answers) {
      if (answer.status === 503) {
        totals.turnedAway++
        continue
      }
      all.set(answer.id, answer)
      if (answer.ended) totals.ended++
      else totals.cut++
    }
    totals.double += spooledTwice(folder, totals)
  }
  const last = await start(t, folder, apiKey)
  await shippedLeftovers(folder)
  check(folder, all, totals)
  totals.records = allRecords(folder).size
  await findable(t, last.url, apiKey, [...all.values()].filter(answer => answer.ended).slice(-20))
  last.child.kill('SIGTERM')
  await once(last.child, 'exit')
  t.same(
    readdirSync(join(folder, 'data/spool')).filter(name => !name.endsWith('.lock')),
    [],
    'nothing is left in the spool',
  )
  return totals
}

async function start(t: Test, folder: string, apiKey: string) {
  const child = spawn(process.execPath, [...PRODUCT_FLAGS, MAIN, '--config', 'gateway.yaml'], {
    cwd: folder,
    env: {
      ...PRODUCT_ENVIRONMENT,
      GATEWAY_PORT: '0',
      GATEWAY_ADMIN_PORT: '0',
      GATEWAY_API_KEY: apiKey,
      GATEWAY_SERVE_THREADS: '2',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  let output = ''
  for await (const text of child.stdout.setEncoding('utf8').iterator({ destroyOnReturn: false })) {
    output += text
    const line = output.split('\n').find(candidate => candidate.includes('"msg":"listening"'))
    if (line === undefined) continue
    child.stdout.resume()
    return { child, url: (JSON.parse(line) as { url: string }).url }
  }
  throw new Error(`did not start: ${output}`)
}

/** Callers ask again and again until the process is killed under them. */
async function loadUntilDeath(child: ChildProcess, url: string, apiKey: string): Promise<Answer[]> {
  const agent = new Agent({ keepAlive: true })
  const answers: Answer[] = []
  const busy = Promise.withResolvers<void>()
  let ended = 0
  let dead = false
  const callers = Array.from({ length: CALLERS }, async (_, caller) => {
    for (let turn = 0; !dead; turn++) {
      const answer = await ask(url, apiKey, agent, bodyOf(caller, turn), head => answers.push(head))
      if (answer?.ended === true && answer.status !== 503 && ++ended === ENDED_MIN) busy.resolve()
    }
  })
  await busy.promise
  await delay(randomInt(LIFE_MAX_MS))
  child.kill('SIGKILL')
  dead = true
  await once(child, 'exit')
  await Promise.all(callers)
  agent.destroy()
  return answers
}

function bodyOf(caller: number, turn: number): Record<string, unknown> {
  const format = ['', 'chat-', 'messages-', 'gemini-'][caller % 4]
  const stream = caller % 5 !== 4
  switch (turn % 4) {
    case 0:
      return { model: `sim/${format}echo`, input: `turn ${turn}`, stream }
    case 1:
      return { model: `sim/${format}write-200-20`, input: 'x', max_output_tokens: 16, stream }
    case 2:
      return { model: 'nobody/nothing', input: 'x', stream }
    default:
      return { model: `sim/${format}write`, input: 'x', stream }
  }
}

/** Ends when the answer does, in whatever way, or with null when there is none; `onAnswer` comes with its head. */
function ask(
  url: string,
  apiKey: string,
  agent: Agent,
  body: Record<string, unknown>,
  onAnswer: (answer: Answer) => void,
): Promise<Answer | null> {
  return new Promise(resolve => {
    const asking = request(`${url}/v1/responses`, {
      method: 'POST',
      agent,
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    })
    asking.on('error', () => resolve(null))
    asking.on('response', (reply: IncomingMessage) => {
      const answer: Answer = {
        id: String(reply.headers['x-generation-id']),
        status: reply.statusCode ?? 0,
        ended: false,
        cost: null,
      }
      onAnswer(answer)
      let text = ''
      reply.setEncoding('utf8')
      reply.on('data', (piece: string) => {
        text += piece
        // A byte of the end is enough: the record has to be there before it.
        answer.ended ||= body['stream'] === true && reply.statusCode === 200 ? hasTerminal(text) : true
      })
      reply.on('error', () => undefined)
      reply.on('close', () => {
        if (answer.ended) answer.cost = costIn(text)
        resolve(answer)
      })
    })
    asking.end(JSON.stringify(body))
  })
}

function hasTerminal(text: string): boolean {
  return /^event: response\.(?:completed|incomplete|failed)/m.test(text)
}

/** The cost that the answer tells; 0 for an error; null when the text is cut before it. */
function costIn(text: string): number | null {
  const found = /"cost":([0-9.e-]+),"cost_details"/.exec(text)
  if (found !== null) return Number(found[1])
  return text.startsWith('{"error"') && text.endsWith('}') ? 0 : null
}

/** Waits until what dead processes left has been taken over by the one that runs. */
async function shippedLeftovers(folder: string): Promise<void> {
  const root = join(folder, 'data/spool')
  while (
    existsSync(root) &&
    readdirSync(root, { withFileTypes: true }).filter(entry => entry.isDirectory()).length > 1
  )
    await delay(5)
}

function allRecords(folder: string): Map<string, number> {
  const database = new DatabaseSync(join(folder, 'data/gateway.db'), { readOnly: true, timeout: 5_000 })
  const rows = database.prepare('SELECT id, cost FROM usage').all()
  database.close()
  return new Map(rows.map(row => [String(row['id']), Number(row['cost'])]))
}

/** Holds the database against all answers so far; those that are settled are forgotten. */
function check(folder: string, all: Map<string, Answer>, totals: KillTotals): void {
  const records = allRecords(folder)
  totals.lost = 0
  totals.wrongCost = 0
  for (const { id, ended, cost } of all.values()) {
    const recorded = records.get(id)
    if (recorded === undefined) {
      if (ended) totals.lost++
    } else if (cost !== null && Math.round(cost * 1e12) !== recorded) totals.wrongCost++
  }
}

/** Ids that were spooled more than once: the database would hide them. */
function spooledTwice(folder: string, totals: KillTotals): number {
  const seen = new Set<string>()
  let twice = 0
  const root = join(folder, 'data/spool')
  for (const entry of readdirSync(root, { withFileTypes: true })) {
    if (!entry.isDirectory()) continue
    for (const { path } of spoolFiles(join(root, entry.name))) {
      let offset = 0
      for (let piece = readSpool(path, offset); piece !== null; piece = readSpool(path, offset)) {
        for (const { id } of parseLines(piece.lines).records) {
          if (seen.has(id)) twice++
          seen.add(id)
        }
        offset = piece.offset
      }
    }
  }
  const shipped = allRecords(folder)
  for (const id of seen) if (!shipped.has(id)) totals.unshipped++
  return twice
}

async function findable(t: Test, url: string, apiKey: string, answers: readonly Answer[]): Promise<void> {
  for (const { id } of answers) {
    const reply = await fetch(`${url}/v1/generation?id=${id}`, {
      headers: { authorization: `Bearer ${apiKey}` },
    })
    t.equal(reply.status, 200, 'a record from before the kill is found')
    await reply.text()
  }
}
