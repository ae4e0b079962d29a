/** Something whose events can be listened to by name. */

type Handlers<E> = { [K in keyof E]?: Set<E[K]> };

/** `E` maps each event's name to its handler's type. */
export class Emitter<E extends { [K in keyof E]: (...values: never[]) => void }> {
  private readonly handlers: Handlers<E> = {};

  /** Call `handler` at each event of that name; what is returned ends it. */
  on<K extends keyof E>(name: K, handler: E[K]): () => void {
    const set = (this.handlers[name] ??= new Set<E[K]>());
    set.add(handler);
    return () => void set.delete(handler);
  }

  protected emit<K extends keyof E>(name: K, ...values: Parameters<E[K]>): void {
    for (const handler of this.handlers[name] ?? []) {
      try {
        handler(...values);
      } catch (error) {
        globalThis.reportError?.(error); // a page's own mistake: the conversation goes on, and the console tells
      }
    }
  }

  /** Whether anybody listens to it. */
  protected listened(name: keyof E): boolean {
    return (this.handlers[name]?.size ?? 0) > 0;
  }
}
