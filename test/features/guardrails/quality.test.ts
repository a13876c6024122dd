import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { fold } from '../../../src/features/guardrails/detectors/evasions.ts'
import { INJECTION_PATTERNS } from '../../../src/features/guardrails/detectors/injection-patterns.ts'
import { compileRules } from '../../../src/features/guardrails/rules.ts'
import type { BuiltinSlug } from '../../../src/protocol/management/guardrails.ts'
import { ALL_SLUGS, rulesOf } from '../../support/guardrail-texts.ts'

// Measures how well detectors do on the labelled samples, and renders the table in docs/guardrails.md.

const FOLDER = join(import.meta.dirname, 'samples')

interface Sample {
  readonly text: string
  /** Whether the detector has to find something. */
  readonly found: boolean
}

interface Quality {
  readonly slug: BuiltinSlug
  readonly positives: number
  readonly negatives: number
  readonly precision: number
  readonly recall: number
  /** Texts that were judged wrongly. */
  readonly wrong: readonly string[]
}

function samplesOf(slug: BuiltinSlug): readonly Sample[] {
  return readFileSync(join(FOLDER, `${slug}.jsonl`), 'utf8')
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as Sample)
}

function qualityOf(slug: BuiltinSlug): Quality {
  const scanner = compileRules(rulesOf([slug], 'flag', false))
  const samples = samplesOf(slug)
  const positives = samples.filter(({ found }) => found).length
  let right = 0
  let told = 0
  const wrong: string[] = []
  for (const { text, found } of samples) {
    const finds = scanner.scan(text, 'user').length > 0
    if (finds) told++
    if (finds && found) right++
    if (finds !== found) wrong.push(text)
  }
  return {
    slug,
    positives,
    negatives: samples.length - positives,
    precision: right / told,
    recall: right / positives,
    wrong,
  }
}

/** What was written after the detectors were finished: nothing may be tuned on it, so it tells how they generalize. */
function heldOut(): { readonly samples: number; readonly precision: number; readonly recall: number } {
  const lines = readFileSync(join(FOLDER, 'held-out.jsonl'), 'utf8').trim().split('\n')
  let [positives, right, told] = [0, 0, 0]
  for (const line of lines) {
    const { slug, text, found } = JSON.parse(line) as Sample & { slug: BuiltinSlug }
    const finds = compileRules(rulesOf([slug], 'flag', false)).scan(text, 'user').length > 0
    if (found) positives++
    if (finds) told++
    if (finds && found) right++
  }
  return { samples: lines.length, precision: right / told, recall: right / positives }
}

const qualities = (): readonly Quality[] => ALL_SLUGS.map(qualityOf)

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`

/** A Markdown table and a sentence. */
function qualityTable(all: readonly Quality[]): string {
  const { samples, precision, recall } = heldOut()
  return [
    '| detector | with | without | precision | recall |',
    '| --- | ---: | ---: | ---: | ---: |',
    ...all.map(
      ({ slug, positives, negatives, precision, recall }) =>
        `| \`${slug}\` | ${positives} | ${negatives} | ${percent(precision)} | ${percent(recall)} |`,
    ),
    '',
    `On ${samples} samples for all detectors together, which were written after the detectors were finished and never used for tuning, precision is ${percent(precision)} and recall is ${percent(recall)}. Expect these figures rather than those in the table.`,
  ].join('\n')
}

/** The least that each detector has to reach: what it reaches now, less one sample. */
const FLOORS: Readonly<Record<BuiltinSlug, { readonly precision: number; readonly recall: number }>> = {
  email: { precision: 0.95, recall: 0.95 },
  phone: { precision: 0.95, recall: 0.93 },
  ssn: { precision: 0.95, recall: 0.95 },
  'credit-card': { precision: 0.95, recall: 0.95 },
  'ip-address': { precision: 0.95, recall: 0.95 },
  secrets: { precision: 0.95, recall: 0.95 },
  'person-name': { precision: 0.91, recall: 0.86 },
  address: { precision: 0.95, recall: 0.87 },
  'regex-prompt-injection': { precision: 0.95, recall: 0.95 },
}
const all = qualities()

t.test('each detector keeps its precision and recall on the labelled samples', async t => {
  let samples = 0
  for (const { slug, positives, negatives, precision, recall, wrong } of all) {
    samples += positives + negatives
    t.ok(precision >= FLOORS[slug].precision, `${slug}: precision ${precision.toFixed(3)}`, { wrong })
    t.ok(recall >= FLOORS[slug].recall, `${slug}: recall ${recall.toFixed(3)}`, { wrong })
    t.ok(positives >= 20 && negatives >= 20, `${slug} has enough samples of both kinds`)
  }
  t.ok(samples >= 400, `${samples} samples`)
})

t.test('detectors generalize to texts that nothing was tuned on', async t => {
  const { samples, precision, recall } = heldOut()
  t.ok(samples >= 70)
  t.ok(precision >= 0.89, `precision ${precision.toFixed(3)}`)
  t.ok(recall >= 0.8, `recall ${recall.toFixed(3)}`)
})

t.test('docs/guardrails.md has the table as measured', async t => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/guardrails.md'), 'utf8')
  const [, table] = /<!-- quality -->\n([\s\S]*?)\n<!-- end -->/.exec(page) ?? []
  t.equal(table, qualityTable(all))
})

t.test('no glance hides what a pattern of prompt injection would find', async t => {
  let matched = 0
  for (const { text } of samplesOf('regex-prompt-injection')) {
    const folded = fold(text).text
    const starts = new Set((folded.match(/[a-z]+/g) ?? []).map(word => word.slice(0, 4)))
    for (const { name, source, words, needs } of INJECTION_PATTERNS) {
      if (!new RegExp(source).test(folded)) continue
      matched++
      t.ok(needs.test(folded), `${name} needs what ${text} has`)
      const isNamed = words.length === 0 || words.includes('*') || words.some(word => starts.has(word))
      t.ok(isNamed, `${name} has a word of ${text}`)
    }
  }
  t.ok(matched > 40)
})
