/**
 * A compaction block of Anthropic as the `encrypted_content` of a compaction item, and back. The block has
 * several fields that must return unchanged, the item has one that nobody but its maker reads: so the block
 * travels in it as a whole. Pure.
 */
import { type Json, jsonText, parsedJson, record, textOrEmpty } from '../json.ts'

/** Tells our packed blocks from compactions of other providers, which Anthropic cannot read. */
const MARK = 'anthropic-claude-v1:'

/** The fields of a block that are sent back. */
const KEPT = ['content', 'encrypted_content', 'signature', 'tool_changes'] as const

export function sealCompaction(block: Json): string {
  return MARK + Buffer.from(jsonText(keptOf(block))).toString('base64url')
}

function keptOf(block: Json): Json {
  return Object.fromEntries(
    KEPT.flatMap(name => (block[name] === undefined ? [] : [[name, block[name]] as const])),
  )
}

/** The block to send back, or null when the item is another provider's. */
export function openCompaction(encryptedContent: unknown): Json | null {
  const sealed = textOrEmpty(encryptedContent)
  if (!sealed.startsWith(MARK)) return null
  const found = record(parsedJson(Buffer.from(sealed.slice(MARK.length), 'base64url').toString('utf8')))
  return found === null ? null : { type: 'compaction', ...keptOf(found) }
}
