/**
 * Shell blocks of Markdown pages: their commands, the output that the page shows for each, and differences from a real
 * output.
 */

export interface ShellCommand {
  /** Line of the page, from 1. */
  readonly line: number
  readonly text: string
  /** What the page shows as its output; empty: nothing. */
  readonly shown: string
}

const FENCE = /^```(\w*)/

/** In the order of the page: of `console` blocks what follows a `$`, of `sh` blocks every command. */
export function shellCommands(markdown: string): readonly ShellCommand[] {
  const commands: { line: number; text: string; shown: string }[] = []
  let language = ''
  let isOpenCommand = false
  for (const [at, line] of markdown.split('\n').entries()) {
    const fence = FENCE.exec(line)
    if (fence !== null) {
      language = language === '' ? (fence[1] ?? '') || 'text' : ''
      isOpenCommand = false
      continue
    }
    if (language !== 'console' && language !== 'sh') continue
    const last = commands.at(-1)
    if (isOpenCommand && last !== undefined) last.text += `\n${line}`
    else {
      const text = language === 'sh' ? line : /^\$ (.*)$/.exec(line)?.[1]
      if (text === undefined || (language === 'sh' && /^#|^$/.test(line))) {
        if (last !== undefined) last.shown += `${line}\n`
        continue
      }
      commands.push({ line: at + 1, text, shown: '' })
    }
    isOpenCommand = isUnfinished(commands.at(-1)?.text ?? '')
  }
  return commands
}

/** A quote is open, or the line goes on. */
function isUnfinished(text: string): boolean {
  let quote = ''
  for (let at = 0; at < text.length; at++) {
    const character = text[at] ?? ''
    if (character === '\\' && quote !== "'") {
      if (at === text.length - 1) return true
      at++
    } else if (quote === '') {
      if (character === '#' && /^\s?$/.test(text[at - 1] ?? '')) {
        // A comment to the end of the line.
        while (at < text.length && text[at] !== '\n') at++
      } else if (character === "'" || character === '"') quote = character
    } else if (character === quote) quote = ''
  }
  return quote !== ''
}

type Fields = Readonly<Record<string, unknown>>
const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The value of a text, where it is JSON without anything left out. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const ERROR = /^\s*\{\s*(?:"type":\s*"error",\s*)?"error":/

/** Differences between what the page shows and what came; empty: it is the same in form, and in its error. */
export function outputFaults(shown: string, output: string): readonly string[] {
  const [first, came] = [parsed(shown), parsed(output)]
  if (ERROR.test(shown) !== ERROR.test(output)) return [`came: ${output.slice(0, 500)}`]
  if (ERROR.test(shown)) {
    const [expected, actual] = [shown, output].map(text => /"code":\s*(\d+)/.exec(text)?.[1])
    if (expected !== actual) return [`the status is ${actual}, and the page shows ${expected}`]
    const [told, said] = [messageIn(first), messageIn(came)]
    if (told !== undefined && told !== said) return [`the message is: ${said}`]
  }
  // Failures of commands are on stderr.
  if (shown.trim() !== '' && !shown.startsWith('sluice: ') && output.trim() === '') return ['nothing came']
  return first === undefined || came === undefined ? [] : missing(first, came, '')
}

function messageIn(value: unknown): unknown {
  return isFields(value) && isFields(value['error']) ? value['error']['message'] : undefined
}

/** Paths of fields that the page shows and that did not come. */
function missing(shown: unknown, came: unknown, path: string): readonly string[] {
  if (Array.isArray(shown) && Array.isArray(came))
    return shown.length === 0 || came.length === 0 ? [] : missing(shown[0], came[0], `${path}[0]`)
  if (!isFields(shown)) return []
  if (!isFields(came)) return [`${path} is no object`]
  return Object.entries(shown).flatMap(([name, value]) =>
    name in came ? missing(value, came[name], `${path}.${name}`) : [`${path}.${name} did not come`],
  )
}
