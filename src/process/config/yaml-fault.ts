/** Error messages for YAML syntax errors. The parser's own messages are not used, because they quote the file. Pure. */
import { type ErrorCode, YAMLParseError } from 'yaml'

const FAULT_TEXTS: Partial<Record<ErrorCode, string>> = {
  BAD_ALIAS: 'an alias (*) is malformed',
  BAD_COLLECTION_TYPE: 'a tag (!) does not match the value after it',
  BAD_DIRECTIVE: 'a directive (%) is unknown',
  BAD_DQ_ESCAPE: 'a backslash in double quotes escapes nothing; use single quotes, or two backslashes',
  BAD_INDENT: 'the indentation does not match the lines above, or a bracket there is not closed',
  BAD_SCALAR_START: 'a text begins with a character that needs quotes',
  BLOCK_AS_IMPLICIT_KEY:
    'a setting begins inside another one on the same line, or a quote is missing in the line above',
  BLOCK_IN_FLOW: 'a list with dashes or an indented group is not allowed inside brackets',
  DUPLICATE_KEY: 'a setting occurs twice in the same group',
  MISSING_CHAR:
    'a quote, a bracket, a comma or a colon with a space after it is missing here or in the lines above',
  MULTILINE_IMPLICIT_KEY: 'a colon is missing after a name, or a quote is not closed',
  MULTIPLE_DOCS: 'there is a second document (---)',
  TAB_AS_INDENT: 'a tab indents the line; use spaces',
  TAG_RESOLVE_FAILED: 'a tag (!) is unknown',
  UNEXPECTED_TOKEN: 'a character that does not belong here',
}

/** The fault and its place. */
export function yamlFault(error: unknown): string {
  if (!(error instanceof YAMLParseError)) return 'an alias (*) refers to an anchor (&) that does not exist'
  const words = FAULT_TEXTS[error.code] ?? error.code.toLowerCase().replaceAll('_', ' ')
  const [start] = error.linePos ?? []
  return start === undefined ? words : `line ${start.line}, column ${start.col}: ${words}`
}
