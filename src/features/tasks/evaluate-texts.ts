/**
 * Scans texts with guardrail rules, for texts that are too long for a serve thread. Each worker caches compiled rules
 * by their key, so that it compiles each rule set once. Pure, except for that cache; task worker.
 */
import { LRUCache } from 'lru-cache'
import type { Author, Finding, RuleSet } from '../guardrails/detector.ts'
import { compileRules, type FilterField, InvalidPattern } from '../guardrails/rules.ts'
import type { Scanner } from '../guardrails/scanner.ts'
import { TaskFailure } from './task.ts'

interface EvaluateTextsInput {
  readonly rules: RuleSet
  /** A hash of the rules. Equal keys mean equal rules. */
  readonly key: string
  /** The body field with the patterns, for errors about an invalid one. Default `content_filters`. */
  readonly field?: FilterField
  readonly texts: readonly { readonly text: string; readonly who: Author }[]
}

/** The findings of each text, in the order of the texts. */
type EvaluateTextsOutput = readonly (readonly Finding[])[]

/** Maximum compiled rule sets in the cache; a large one takes a few megabytes. */
const MAX_COMPILED_RULE_SETS = 64

/** Creates the task function, with a cache of its own. The function throws TaskFailure `bad_rules`. */
export function createEvaluator(): (input: EvaluateTextsInput) => EvaluateTextsOutput {
  const compiled = new LRUCache<string, Scanner>({ max: MAX_COMPILED_RULE_SETS })
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
