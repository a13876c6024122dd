/**
 * Real coding agents from npm against providers of every format: what they did to files, what it cost, and what was
 * refused. `AGENTS`, `FORMATS` and `SCENES` choose some, separated by commas.
 */
import t, { type Test } from 'tap'
import { until } from '../support/patience.ts'
import { FULL_TOKENS, PROGRAMS, type Program, TASK } from './agents/programs.ts'
import { AGENT_FORMATS, type AgentFormat } from './agents/provider.ts'
import { type AgentResult, AgentWorld } from './agents/world.ts'

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
    const run = await world.run({
      program,
      format,
      trouble: { fillsAt: { step: 1, inputTokens: FULL_TOKENS } },
      isSmall: true,
    })
    checkTask(t, run)
    if (program.compacts) t.ok(run.play.summaries > 0, 'it asked for a summary')
    return run
  },

  async interrupted(t, program, format) {
    const run = await world.run({ program, format, trouble: { hangsAt: 1 }, isInterrupted: true })
    t.ok(run.play.hung > 0, 'a reply hung')
    await until('the end of the request', () => run.play.closedEarly > 0)
    t.same(
      run.refused.filter(line => !line.includes('"status":499')),
      [],
      'nothing was refused',
    )
    const again = await world.run({ program, format, trouble: {}, place: run.place })
    checkTask(t, again)
    return again
  },
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

for (const program of programs) {
  const passed: string[] = []
  for (const format of formats) {
    let count = 0
    for (const name of scenes) {
      t.test(`${program.name} ${program.version} at ${format}: ${name}`, async t => {
        const run = await SCENES[name]?.(t, program, format)
        if (run === undefined) return
        const { told, signatures, thoughtsBack, summaries } = run.play
        t.comment(
          `${told.length} requests, thoughts ${thoughtsBack} of ${signatures.length} back, summaries ${summaries}`,
        )
        if (t.passing()) count++
        else t.comment(run.output.slice(-3000))
      })
    }
    t.test(`${program.name} at ${format}`, async () => {
      passed.push(`${format} ${count}/${scenes.length}`)
    })
  }
  t.test(`${program.name} ${program.version}`, async t => t.comment(`RESULT ${passed.join(', ')}`))
}
