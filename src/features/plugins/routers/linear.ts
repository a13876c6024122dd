/**
 * The linear classifier: picks the task type whose weights, summed over the features of a prompt, are greatest. The
 * weights are data; scripts/task-classifier/train.ts makes them. Pure.
 */
import { readFileSync } from 'node:fs'
import { featuresOf, type PromptForm } from './features.ts'
import type { TaskType } from './task-types.ts'

/** The file of the weights. */
interface WeightsFile {
  readonly types: readonly TaskType[]
  /** Keyed by feature: alternating type numbers and their weights in hundredths. */
  readonly weights: Readonly<Record<string, readonly number[]>>
}

type Classify = (form: PromptForm) => TaskType

/** Creates the classifier. It reads the shipped weights, a file of 200 KB, on first use. */
export function createLinearClassifier(): Classify {
  return form => {
    loaded ??= load()
    return best(featuresOf(form), loaded.weights, loaded.types)
  }
}

interface Loaded {
  readonly types: readonly TaskType[]
  readonly weights: ReadonlyMap<string, readonly number[]>
}

/** All classifiers of a thread share it. */
let loaded: Loaded | null = null

function load(): Loaded {
  const text = readFileSync(new URL('./weights.json', import.meta.url), 'utf8')
  const { types, weights } = JSON.parse(text) as WeightsFile
  return { types, weights: new Map(Object.entries(weights)) }
}

/** The type with the greatest sum; of equal sums, the first type in the list. */
export function best(
  features: ReadonlySet<string>,
  weights: ReadonlyMap<string, readonly number[]>,
  types: readonly TaskType[],
): TaskType {
  const sums = new Float64Array(types.length)
  for (const feature of features) {
    const row = weights.get(feature)
    if (row === undefined) continue
    for (let at = 0; at + 1 < row.length; at += 2) {
      const type = row[at] ?? 0
      sums[type] = (sums[type] ?? 0) + (row[at + 1] ?? 0)
    }
  }
  let found = 0
  for (let type = 1; type < sums.length; type++) if ((sums[type] ?? 0) > (sums[found] ?? 0)) found = type
  return types[found] ?? 'chat'
}
