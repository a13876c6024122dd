/**
 * What a guardrail's rules find in texts that are too long to look at on a serve thread. Compiled rules are remembered
 * by their key, so that a worker compiles a rule set once and not for each request. Pure but for that; task worker.
 */
import { LRUCache } from 'lru-cache'
import {
  type Author,
  compileRules,
  type FilterField,
  type Finding,
  InvalidPattern,
  type RuleSet,
  type Scanner,
} from '../guardrails/rules.ts'
import { TaskFailure } from './task.ts'

export interface EvaluateTextsInput {
  readonly rules: RuleSet
  /** Stands for the rules: a hash of them. Equal keys are taken for equal rules. */
  readonly key: string
  /** Where a body has the patterns, for what is told of one that cannot be run; absent: `content_filters`. */
  readonly field?: FilterField
  readonly texts: readonly { readonly text: string; readonly who: Author }[]
}

/** Of each text, in its place. */
export type EvaluateTextsOutput = readonly (readonly Finding[])[]

/** Rule sets that stay compiled; a large one holds some megabytes. */
const COMPILED_MAX = 64

/** The task with a memory of its own. It throws TaskFailure `bad_rules`. */
export function createEvaluator(): (input: EvaluateTextsInput) => EvaluateTextsOutput {
  const compiled = new LRUCache<string, Scanner>({ max: COMPILED_MAX })
  return ({ rules, key, field, texts }) => {
    let scanner = compiled.get(key)
    if (scanner === undefined) {
      scanner = compile(rules, field)
      compiled.set(key, scanner)
    }
    const scan = scanner
    return texts.map(({ text, who }) => scan.scan(text, who))
  }
}

function compile(rules: RuleSet, field?: FilterField): Scanner {
  try {
    return compileRules(rules, field)
  } catch (error) {
    if (error instanceof InvalidPattern) throw new TaskFailure('bad_rules', error.message)
    throw error
  }
}
