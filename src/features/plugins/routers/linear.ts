/**
 * The linear classifier: picks the task type whose weights, summed over the features of a prompt, are greatest. The
 * weights are data; scripts/task-classifier/train.ts makes them.
 */
import { readFileSync } from 'node:fs'
import { featuresOf, type PromptForm } from './features.ts'
import type { TaskType } from './task-types.ts'

interface WeightsFile {
  readonly types: readonly TaskType[]
  /** Keyed by feature: alternating type numbers and their weights in hundredths. */
  readonly weights: Readonly<Record<string, readonly number[]>>
}

type Classify = (form: PromptForm) => TaskType

/** Creates the classifier. It reads the shipped weights, a file of 270 KB, on first use. */
export function createLinearClassifier(): Classify {
  return form => {
    loadedWeights ??= loadWeights()
    return bestType(featuresOf(form), loadedWeights.weights, loadedWeights.types)
  }
}

interface LoadedWeights {
  readonly types: readonly TaskType[]
  readonly weights: ReadonlyMap<string, readonly number[]>
}

/** Shared by all classifiers of a thread. */
let loadedWeights: LoadedWeights | null = null

function loadWeights(): LoadedWeights {
  const text = readFileSync(new URL('./weights.json', import.meta.url), 'utf8')
  const { types, weights } = JSON.parse(text) as WeightsFile
  return { types, weights: new Map(Object.entries(weights)) }
}

/** The type with the greatest sum; of equal sums, the first type in the list. */
export function bestType(
  features: ReadonlySet<string>,
  weights: ReadonlyMap<string, readonly number[]>,
  types: readonly TaskType[],
): TaskType {
  const totals = new Float64Array(types.length)
  for (const feature of features) {
    const row = weights.get(feature)
    if (row === undefined) continue
    for (let index = 0; index + 1 < row.length; index += 2) {
      const type = row[index] ?? 0
      totals[type] = (totals[type] ?? 0) + (row[index + 1] ?? 0)
    }
  }
  let winner = 0
  for (let type = 1; type < totals.length; type++)
    if ((totals[type] ?? 0) > (totals[winner] ?? 0)) winner = type
  return types[winner] ?? 'chat'
}
