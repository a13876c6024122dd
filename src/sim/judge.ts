/**
 * The simulated evaluator of alignment: reads numbered rules and a message, answers a probability per rule. Pure.
 * A rule is broken (0.95) when the message contains a word that the rule puts in quotes; a marker `[[p=0.42]]`
 * in the rule sets the number; everything else is 0.02.
 */

const BROKEN = 0.95
const KEPT = 0.02
const NUMBERED = /^\s*(\d{1,3})\s*[.):]\s*(.*)$/
const MARKER = /\[\[p=(\d(?:\.\d+)?)\]\]/
const QUOTED = /"([^"]+)"|“([^”]+)”|'([^']+)'(?!\w)|`([^`]+)`/gu

/** Name of the JSON schema that asks for a verdict. */
export const VERDICT_SCHEMA = 'alignment_verdict'

/** Probabilities in the order of the rules. Rules in the system text leave the whole user text as the message. */
export function probabilities(system: string, user: string): number[] {
  const inSystem = numberedRun(system)
  const found = inSystem.rules.length > 0 ? { rules: inSystem.rules, rest: user } : numberedRun(user)
  const message = found.rest.toLowerCase()
  return found.rules.map(rule => probability(rule, message))
}

/** The first run of lines numbered 1, 2, 3, … and the text around it. */
function numberedRun(text: string): { readonly rules: readonly string[]; readonly rest: string } {
  const rules: string[] = []
  const rest: string[] = []
  let ended = false
  for (const line of text.split('\n')) {
    const match = ended ? null : NUMBERED.exec(line)
    if (match !== null && Number(match[1]) === rules.length + 1) {
      rules.push(match[2] ?? '')
      continue
    }
    // A numbered list in the message must not be taken for more rules.
    ended ||= rules.length > 0 && line.trim() !== ''
    rest.push(line)
  }
  return { rules, rest: rest.join('\n') }
}

function probability(rule: string, message: string): number {
  const marker = MARKER.exec(rule)
  if (marker !== null) return Math.min(1, Number(marker[1]))
  for (const match of rule.matchAll(QUOTED)) {
    const word = match[1] ?? match[2] ?? match[3] ?? match[4] ?? ''
    if (message.includes(word.toLowerCase())) return BROKEN
  }
  return KEPT
}
