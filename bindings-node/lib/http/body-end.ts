// Reports the end of a body.

/** Ends bodies that were garbage-collected unread. The functions must not refer to their streams. */
const collected = new FinalizationRegistry<() => void>((giveUp) => giveUp());

/**
 * Returns a stream of the bytes of a body, which reads them on demand. It calls `end` after the last one, or when the
 * stream breaks off or is given up, and `feed` with each chunk. A TransformStream takes twice as long.
 */
export function withEnd(
  body: ReadableStream<Uint8Array>,
  end: () => void,
  feed?: (chunk: Uint8Array) => void,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  const cancel = (reason?: unknown): Promise<void> => {
    end();
    return reader.cancel(reason);
  };
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (!done) {
            feed?.(value);
            return controller.enqueue(value);
          }
          end();
          controller.close();
        } catch (error) {
          end();
          controller.error(error);
        }
      },
      cancel,
    },
    { highWaterMark: 0 },
  );
  collected.register(stream, () => void cancel().catch(() => {}));
  return stream;
}
