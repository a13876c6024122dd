/**
 * Rankings: how much each model is used for each task type, how many tokens such a task usually takes, and how well
 * models write code. The data comes from a JSON file; the default one is rankings.json. Pure.
 */
import { isRecord, parseJson } from '../../../base/json.ts'
import { isTaskType, TASK_TYPES, type TaskType } from './task-types.ts'

/** Levels of task difficulty. */
export const LEVELS = ['low', 'medium', 'high'] as const
export type Level = (typeof LEVELS)[number]

export interface TaskRanking {
  /** Tokens of an average generation. */
  readonly inputTokens: number
  readonly outputTokens: number
  readonly level: Level
  /** Share of the spending on the task, by model. */
  readonly shares: ReadonlyMap<string, number>
}

export interface Rankings {
  task(type: TaskType): TaskRanking
  /** Sum of the shares of a model over all tasks; 0 if it is not ranked. */
  overall(modelId: string): number
  /** From 0 to 1; 0 for a model without a score. */
  codingScore(modelId: string): number
  /** Every model with a share or a score. */
  readonly modelIds: ReadonlySet<string>
}

/** The ranking of a task that the file does not contain. */
const UNRANKED: TaskRanking = { inputTokens: 1_000, outputTokens: 500, level: 'medium', shares: new Map() }
/** Models of one list: more would make each choice slow. */
const MAX_MODELS = 1_000
const MAX_TOKENS = 10_000_000

/** The faults of a file, one line each, with the place of each fault. */
export class RankingsError extends Error {
  override readonly name = 'RankingsError'
}

/** @throws RankingsError */
export function readRankings(text: string): Rankings {
  const value = parseJson(text)
  if (value === undefined) throw new RankingsError('expected JSON')
  const faults: string[] = []
  const file = objectAt(value, '', faults)
  for (const name of Object.keys(file)) {
    if (!['asOf', 'about', 'tasks', 'coding'].includes(name))
      faults.push(`${printableName(name)}: unknown field`)
  }
  const tasks = new Map<TaskType, TaskRanking>()
  for (const [name, row] of Object.entries(objectAt(file['tasks'] ?? {}, 'tasks', faults))) {
    const path = `tasks.${printableName(name)}`
    if (isTaskType(name)) tasks.set(name, taskOf(objectAt(row, path, faults), path, faults))
    else faults.push(`${path}: expected one of ${TASK_TYPES.join(', ')}`)
  }
  const coding = sharesOf(file['coding'] ?? {}, 'coding', faults)
  if (faults.length > 0) throw new RankingsError(faults.join('\n'))
  return rankingsOf(tasks, coding)
}

function rankingsOf(
  tasks: ReadonlyMap<TaskType, TaskRanking>,
  coding: ReadonlyMap<string, number>,
): Rankings {
  const overall = new Map<string, number>()
  for (const { shares } of tasks.values()) {
    for (const [id, share] of shares) overall.set(id, (overall.get(id) ?? 0) + share)
  }
  return {
    task: type => tasks.get(type) ?? UNRANKED,
    overall: id => overall.get(id) ?? 0,
    codingScore: id => coding.get(id) ?? 0,
    modelIds: new Set([...overall.keys(), ...coding.keys()]),
  }
}

function taskOf(row: Readonly<Record<string, unknown>>, path: string, faults: string[]): TaskRanking {
  for (const name of Object.keys(row)) {
    if (!['inputTokens', 'outputTokens', 'level', 'models'].includes(name)) {
      faults.push(`${path}.${printableName(name)}: unknown field`)
    }
  }
  const level = row['level'] ?? UNRANKED.level
  const knownLevel = LEVELS.find(candidate => candidate === level)
  if (knownLevel === undefined) faults.push(`${path}.level: expected one of ${LEVELS.join(', ')}`)
  return {
    inputTokens: tokensAt(row, 'inputTokens', path, faults),
    outputTokens: tokensAt(row, 'outputTokens', path, faults),
    level: knownLevel ?? UNRANKED.level,
    shares: sharesOf(row['models'] ?? {}, `${path}.models`, faults),
  }
}

function tokensAt(
  row: Readonly<Record<string, unknown>>,
  name: 'inputTokens' | 'outputTokens',
  path: string,
  faults: string[],
): number {
  const value = row[name] ?? UNRANKED[name]
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_TOKENS) return value
  faults.push(`${path}.${name}: expected an integer from 0 to ${MAX_TOKENS}`)
  return 0
}

function sharesOf(value: unknown, path: string, faults: string[]): ReadonlyMap<string, number> {
  const entries = Object.entries(objectAt(value, path, faults))
  if (entries.length > MAX_MODELS) faults.push(`${path}: expected at most ${MAX_MODELS} models`)
  const shares = new Map<string, number>()
  for (const [id, share] of entries.slice(0, MAX_MODELS)) {
    if (typeof share === 'number' && share >= 0 && share <= 1) shares.set(id, share)
    else faults.push(`${path}.${printableName(id)}: expected a number from 0 to 1`)
  }
  return shares
}

function objectAt(value: unknown, path: string, faults: string[]): Readonly<Record<string, unknown>> {
  if (isRecord(value)) return value
  faults.push(`${path === '' ? '(root)' : path}: expected an object`)
  return {}
}

/** The form of a name in errors; `*` stands for a name with unusual characters. */
function printableName(name: string): string {
  return /^[\w./:~-]{1,128}$/.test(name) ? name : '*'
}
