/** Measures how well detectors do on the labelled samples, and renders the table in docs/guardrails.md. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { compileRules } from '../../src/features/guardrails/rules.ts'
import type { BuiltinSlug } from '../../src/protocol/management/guardrails.ts'
import { ALL_SLUGS, rulesOf } from './guardrail-texts.ts'

const FOLDER = join(import.meta.dirname, '../features/guardrails/samples')

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

export function samplesOf(slug: BuiltinSlug): readonly Sample[] {
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
export function heldOut(): { readonly samples: number; readonly precision: number; readonly recall: number } {
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

export const qualities = (): readonly Quality[] => ALL_SLUGS.map(qualityOf)

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`

/** A Markdown table and a sentence. */
export function qualityTable(all: readonly Quality[]): string {
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
