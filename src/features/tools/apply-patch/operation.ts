/**
 * apply_patch operations with diffs in V4A format: validates them strictly, so that a client only gets operations that
 * it can apply. Pure.
 */

export type PatchOperation =
  | { readonly type: 'create_file' | 'update_file'; readonly path: string; readonly diff: string }
  | { readonly type: 'delete_file'; readonly path: string }

/** An invalid patch. The message is for the model. */
export class PatchFault extends Error {}

const OPERATION_TYPES = ['create_file', 'update_file', 'delete_file'] as const
const MAX_PATH_CHARS = 1_024
const MAX_DIFF_CHARS = 1024 * 1024
/** Control characters, and characters that only change how a path looks. */
const HIDDEN_CHARACTERS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u
const DRIVE_LETTER = /^[A-Za-z]:/

/** @throws PatchFault */
export function parseOperation(args: Readonly<Record<string, unknown>>): PatchOperation {
  const { type, path, diff } = args
  const kind = OPERATION_TYPES.find(candidate => candidate === type)
  if (kind === undefined) throw new PatchFault(`type: must be one of ${OPERATION_TYPES.join(', ')}`)
  if (typeof path !== 'string') throw new PatchFault('path: is required')
  checkPath(path)
  if (kind === 'delete_file') {
    if (diff !== undefined && diff !== null && diff !== '')
      throw new PatchFault('diff: must be left out for delete_file')
    return { type: kind, path }
  }
  if (typeof diff !== 'string') throw new PatchFault('diff: is required')
  if (diff.length > MAX_DIFF_CHARS)
    throw new PatchFault(`diff: must have at most ${MAX_DIFF_CHARS} characters`)
  if (diff.includes('\0')) throw new PatchFault('diff: must not contain NUL')
  const lines = linesOf(diff)
  if (
    lines.some(line =>
      /^\*\*\* (?:Begin Patch|End Patch|Add File|Update File|Delete File|Move to)/.test(line),
    )
  )
    throw new PatchFault('diff: must have the lines of one file, without *** Begin Patch and file headers')
  if (kind === 'create_file') checkCreation(lines)
  else checkUpdate(lines)
  return { type: kind, path, diff }
}

/** Checks that the path is relative and stays within the client's folder on every system. */
function checkPath(path: string): void {
  if (path.length === 0 || path.length > MAX_PATH_CHARS)
    throw new PatchFault(`path: must have 1 to ${MAX_PATH_CHARS} characters`)
  if (HIDDEN_CHARACTERS.test(path)) throw new PatchFault('path: contains invisible characters')
  const parts = path.split(/[/\\]/)
  if (parts[0] === '' || DRIVE_LETTER.test(path) || parts[0] === '~')
    throw new PatchFault('path: must be relative')
  if (parts.some(part => part.trim() === '' || /^\.{1,2}$/.test(part.trim())))
    throw new PatchFault('path: must not have empty parts, . or ..')
}

function checkCreation(lines: readonly string[]): void {
  const wrongLine = lines.findIndex(line => !line.startsWith('+'))
  if (wrongLine !== -1)
    throw new PatchFault(`diff: line ${wrongLine + 1} must begin with +, like all lines of a new file`)
}

/** Checks sections, each with an optional head `@@ …`; their lines begin with a blank, `-` or `+`. */
function checkUpdate(lines: readonly string[]): void {
  let changes = 0
  let section = { headIndex: 0, lines: 0, changes: 0 }
  let isEnded = false
  const endSection = (): void => {
    if (section.lines > 0 && section.changes === 0)
      throw new PatchFault(`diff: the section at line ${section.headIndex + 1} changes nothing`)
  }
  for (const [index, line] of lines.entries()) {
    const number = index + 1
    if (isEnded && !line.startsWith('@@'))
      throw new PatchFault(
        `diff: line ${number} follows *** End of File, after which only a new section (@@) may begin`,
      )
    if (line.startsWith('@@')) {
      if (line !== '@@' && !line.startsWith('@@ '))
        throw new PatchFault(`diff: line ${number} must be @@, or @@ and a line of the file`)
      endSection()
      // Several heads may follow each other: each narrows down the position of the section.
      section = { headIndex: index, lines: 0, changes: 0 }
      isEnded = false
    } else if (line === '*** End of File') {
      if (section.lines === 0) throw new PatchFault(`diff: line ${number} ends a section without lines`)
      isEnded = true
    } else if (line === '' || ' +-'.includes(line.charAt(0))) {
      // An empty line is a context line that lost its blank.
      const isChange = line.startsWith('+') || line.startsWith('-')
      section.lines++
      if (isChange) section.changes++
      if (isChange) changes++
    } else {
      throw new PatchFault(`diff: line ${number} must begin with a blank, + or -, or be @@`)
    }
  }
  endSection()
  if (changes === 0) throw new PatchFault('diff: has no line that begins with + or -')
  if (section.lines === 0)
    throw new PatchFault(`diff: the section at line ${section.headIndex + 1} has no lines`)
}

/** The lines, without the empty text after the last line end. */
function linesOf(diff: string): string[] {
  const lines = diff.split(/\r?\n/)
  if (lines.at(-1) === '') lines.pop()
  return lines
}
