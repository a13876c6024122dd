/**
 * Real coding agents from npm against providers of every format: what they did to files, what it cost, and what was
 * refused. `AGENTS`, `FORMATS` and `SCENES` choose some, separated by commas.
 */
import t, { type Test } from 'tap'
import { until } from '../support/patience.ts'
import { FULL_TOKENS, PROGRAMS, type Program, TASK } from './agents/programs.ts'
import { AGENT_FORMATS, type AgentFormat } from './agents/provider.ts'
import { type AgentResult, AgentWorld, CIRCLE_REPEATS } from './agents/world.ts'

t.setTimeout(0)

type Scene = (t: Test, program: Program, format: AgentFormat) => Promise<AgentResult>

/** The files are right, the program is content, nothing was refused, and each token is in the ledger. */
function checkTask(t: Test, run: AgentResult): void {
  t.equal(run.status, 0, 'exit status')
  t.match(run.output, 'FINISHED-9203', 'the answer is shown')
  t.equal(run.file('notes.txt'), TASK.edited, 'the file is edited')
  t.equal(run.file('copy.txt'), TASK.edited, 'the command has run')
  t.same(run.refused, [], 'nothing was refused')
  t.same(run.play.faults, [], 'each result came back')
  t.same(run.ledger, run.wire, 'the ledger has what was told')
}

const SCENES: Readonly<Record<string, Scene>> = {
  async task(t, program, format) {
    const run = await world.run({ program, format, trouble: {} })
    checkTask(t, run)
    if (program.keepsThoughts.includes(format))
      t.equal(run.play.thoughtsBack, run.play.signatures.length, 'its thoughts came back')
    return run
  },

  async failover(t, program, format) {
    const run = await world.run({ program, format, trouble: { failsAt: 1 } })
    checkTask(t, run)
    t.ok(run.play.refused > 0, 'the first provider was out')
    t.ok(
      run.play.told.some(({ provider }) => provider === 'second'),
      'another one took over',
    )
    return run
  },

  async compaction(t, program, format) {
    const { compaction } = program
    if (typeof compaction === 'string') throw new Error(compaction)
    const fillsAt = { step: compaction.step, inputTokens: FULL_TOKENS }
    const first = await world.run({ program, format, trouble: { fillsAt }, isSmall: true })
    checkTask(t, first)
    if (compaction.isAgain !== true) {
      t.ok(first.play.summaries > 0, 'it asked for a summary')
      return first
    }
    const { place } = first
    const again = await world.run({ program, format, trouble: {}, isSmall: true, place, isAgain: true })
    checkTask(t, again)
    t.ok(again.play.summaries > 0, 'it asked for a summary')
    return again
  },

  async interrupted(t, program, format) {
    const run = await world.run({ program, format, trouble: { hangsAt: 1 }, isInterrupted: true })
    t.ok(run.play.hung > 0, 'a reply hung')
    await until('the end of the request', () => run.play.closedEarly > 0)
    t.same(run.refused, [], 'nothing was refused')
    const again = await world.run({ program, format, trouble: {}, place: run.place })
    checkTask(t, again)
    return again
  },

  async 'cut-off'(t, program, format) {
    const run = await world.run({ program, format, trouble: {}, isCutOff: true })
    checkTask(t, run)
    t.ok(run.replayed > 0, 'a request was sent again, and got the answer to the first one')
    t.equal(run.play.step, program.steps.length, 'no step ran twice')
    return run
  },

  async continued(t, program, format) {
    const run = await world.run({ program, format, trouble: { breaksAt: program.steps.length } })
    t.equal(run.status, 0, 'exit status')
    t.match(run.output.replace(/\s+/g, ' '), TASK.answer, 'the answer is shown as one text')
    t.same(run.refused, [], 'nothing was refused')
    t.same(run.play.faults, [], 'each result came back, and the text so far went on')
    t.not(run.play.broken, null, 'the first provider broke')
    t.equal(run.ledger.requests, run.wire.requests, 'one request, one record')
    t.ok(run.ledger.output > run.wire.output, 'the part before the break is paid too')
    return run
  },

  async circle(t, program, format) {
    const run = await world.run({ program, format, trouble: {}, isCircle: true })
    t.equal(run.play.step, CIRCLE_REPEATS, 'nothing ran after the circle was seen')
    t.ok(run.refused.length > 0, 'it was refused')
    t.same(
      run.refused.filter(line => !line.includes('loop_detected')),
      [],
      'for no other reason',
    )
    // Codex shows nothing of a 429 but the number.
    t.match(run.output, program.name === 'codex' ? '429' : 'circle', 'its user reads why')
    return run
  },
}

/** Scenes for some programs; the others play all scenes that are not here. */
const ONLY: Readonly<Record<string, readonly string[]>> = {
  'cut-off': ['claude-code', 'codex'],
  continued: ['claude-code', 'codex'],
  circle: ['claude-code', 'codex'],
}

function chosen<T extends string>(name: string, all: readonly T[]): readonly T[] {
  const wanted = process.env[name]?.split(',')
  return all.filter(one => wanted?.includes(one) ?? true)
}

const programs = PROGRAMS.filter(({ name }) =>
  chosen(
    'AGENTS',
    PROGRAMS.map(({ name }) => name),
  ).includes(name),
)
const formats = chosen('FORMATS', AGENT_FORMATS)
const scenes = chosen('SCENES', Object.keys(SCENES))
const world = await AgentWorld.open()
t.teardown(() => world.close())

/** By program and scene: how many providers it passed at, of how many. */
const table: string[] = []
for (const program of programs) {
  const { name: programName, version, compaction } = program
  for (const name of scenes) {
    if (ONLY[name]?.includes(programName) === false || program.scenes?.includes(name) === false) continue
    let passed = 0
    const skip = name === 'compaction' && typeof compaction === 'string' && compaction
    for (const format of formats) {
      t.test(`${programName} ${version} at ${format}: ${name}`, { skip }, async t => {
        const run = await SCENES[name]?.(t, program, format)
        if (run === undefined) return
        const { told, signatures, thoughtsBack, summaries } = run.play
        t.comment(
          `${told.length} requests, ${run.refused.length} refused, thoughts ${thoughtsBack} of ${signatures.length} back, summaries ${summaries}`,
        )
        if (t.passing()) passed++
        else t.comment(run.output.slice(-3000))
      })
    }
    t.test(`${programName}: ${name}`, async () => {
      table.push(
        `${programName} ${version}: ${name} ${skip === false ? `${passed}/${formats.length}` : skip}`,
      )
    })
  }
}
t.test('all of them', async t => {
  for (const line of table) t.comment(`RESULT ${line}`)
})
