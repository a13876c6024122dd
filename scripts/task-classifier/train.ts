/**
 * Trains the weights of the linear task classifier from prompts.txt: `node scripts/task-classifier/train.ts`, then
 * `npm run format`. The result is the same each time. `--check` trains on four fifths of the prompts and prints how
 * many of the rest it classifies correctly. The prompts of the tests (test/fixtures/routers) are never read here.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { featuresOf } from '../../src/features/plugins/routers/features.ts'
import { bestType } from '../../src/features/plugins/routers/linear.ts'
import { isTaskType, TASK_TYPES, type TaskType } from '../../src/features/plugins/routers/task-types.ts'

interface Sample {
  readonly type: number
  readonly features: readonly string[]
  readonly weight: number
}

const EPOCHS = 40
const RATE = 0.25
const DECAY = 1e-5
/** Of the words of a type: so many stand together in a sample. */
const WINDOW = 4
const WORDS_WEIGHT = 1
/** Hundredths below which a weight is left out. */
const LEAST = 12

const here = (name: string): URL => new URL(name, import.meta.url)

function read(): { prompts: Sample[]; words: Sample[] } {
  const prompts: Sample[] = []
  const words: Sample[] = []
  let type = -1
  for (const line of readFileSync(here('prompts.txt'), 'utf8').split('\n')) {
    if (line.startsWith('= ')) {
      const name = line.slice(2)
      if (!isTaskType(name)) throw new Error(`${name} is no type of task`)
      type = TASK_TYPES.indexOf(name)
    } else if (line.startsWith('~ ')) {
      const all = line.slice(2).split(' ')
      for (let at = 0; at < all.length; at++) {
        const text = [...all, ...all].slice(at, at + WINDOW).join(' ')
        words.push({ type, features: [...featuresOf({ text })].filter(isWord), weight: WORDS_WEIGHT })
      }
    } else if (line !== '') {
      prompts.push({ type, features: [...featuresOf({ text: line.replaceAll('\\n', '\n') })], weight: 1 })
    }
  }
  return { prompts, words }
}

/** Words of a list say nothing about the form of a prompt. */
function isWord(feature: string): boolean {
  return !feature.startsWith('#') && !feature.startsWith('^')
}

/** Numbers from 0 to 1, the same each time. */
function createRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

type Weights = Map<string, Float64Array>

/** Softmax regression by stochastic gradient descent. */
function train(samples: readonly Sample[]): Weights {
  const weights: Weights = new Map()
  const random = createRandom(7)
  const order = samples.map((_, index) => index)
  for (let epoch = 0; epoch < EPOCHS; epoch++) {
    for (let at = order.length - 1; at > 0; at--) {
      const other = Math.floor(random() * (at + 1))
      const [a = 0, b = 0] = [order[at], order[other]]
      order[at] = b
      order[other] = a
    }
    const rate = RATE / (1 + epoch * 0.1)
    for (const index of order) learn(weights, samples[index] as Sample, rate)
  }
  return weights
}

function learn(weights: Weights, { type, features, weight }: Sample, rate: number): void {
  const rows = features.map(name => {
    const row = weights.get(name) ?? new Float64Array(TASK_TYPES.length)
    weights.set(name, row)
    return row
  })
  const scale = 1 / Math.sqrt(rows.length)
  const sums = TASK_TYPES.map((_, at) => rows.reduce((sum, row) => sum + (row[at] ?? 0), 0))
  const most = Math.max(...sums)
  const parts = sums.map(sum => Math.exp(sum - most))
  const total = parts.reduce((sum, part) => sum + part, 0)
  for (const [at, part] of parts.entries()) {
    const change = rate * weight * scale * ((at === type ? 1 : 0) - part / total)
    for (const row of rows) row[at] = (row[at] ?? 0) * (1 - DECAY) + change
  }
}

/** In hundredths, without the weights that change nothing. */
function packed(weights: Weights): Map<string, number[]> {
  const rows = new Map<string, number[]>()
  for (const name of [...weights.keys()].sort()) {
    const row: number[] = []
    for (const [at, weight] of (weights.get(name) ?? []).entries()) {
      const hundredths = Math.round(weight * 100)
      if (Math.abs(hundredths) >= LEAST) row.push(at, hundredths)
    }
    if (row.length > 0) rows.set(name, row)
  }
  return rows
}

const { prompts, words } = read()

if (process.argv.includes('--check')) {
  let right = 0
  for (let fold = 0; fold < 5; fold++) {
    const rows = packed(train([...prompts.filter((_, index) => index % 5 !== fold), ...words]))
    for (const { type, features } of prompts.filter((_, index) => index % 5 === fold)) {
      if (bestType(new Set(features), rows, TASK_TYPES) === TASK_TYPES[type]) right++
    }
  }
  process.stdout.write(`${right}/${prompts.length} of the prompts that were left out of the training\n`)
} else {
  const rows = packed(train([...prompts, ...words]))
  const types: readonly TaskType[] = TASK_TYPES
  const lines = [...rows].map(([name, row]) => `  ${JSON.stringify(name)}: ${JSON.stringify(row)}`)
  const file = `{\n "types": ${JSON.stringify(types)},\n "weights": {\n${lines.join(',\n')}\n }\n}\n`
  writeFileSync(here('../../src/features/plugins/routers/weights.json'), file)
  process.stdout.write(`${rows.size} features, ${file.length} bytes\n`)
}
