package bccn;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Takes JSON apart one level at a time, each part as its text: all that the pages of the daemon need. It does not check
 * what is inside the parts beyond where they end.
 */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** The members of an object, by their names, each with its value as JSON. */
    static Map<String, String> members(String object) {
        Json json = new Json(object);
        Map<String, String> members = new LinkedHashMap<>();
        json.all('{', '}', () -> {
            String name = string(json.value());
            json.expect(':');
            members.put(name, json.value());
        });
        return members;
    }

    /** The elements of an array, each as JSON. */
    static List<String> elements(String array) {
        Json json = new Json(array);
        List<String> elements = new ArrayList<>();
        json.all('[', ']', () -> elements.add(json.value()));
        return elements;
    }

    /** Adds the rows of a page of the daemon; returns where the next one begins, and nothing if there is none. */
    static String page(String answer, String key, List<String> rows) {
        Map<String, String> page = members(answer);
        rows.addAll(elements(page.getOrDefault(key, "")));
        String next = page.getOrDefault("next", "null");
        return next.equals("null") ? "" : next.startsWith("\"") ? string(next) : next;
    }

    /** The characters of a string. */
    static String string(String value) {
        if (value.length() < 2 || value.charAt(0) != '"') {
            throw new IllegalArgumentException("no string: " + value);
        }
        StringBuilder characters = new StringBuilder();
        for (int i = 1; i < value.length() - 1; i++) {
            char letter = value.charAt(i);
            if (letter != '\\') {
                characters.append(letter);
                continue;
            }
            letter = value.charAt(++i);
            int known = "bfnrt".indexOf(letter);
            if (letter == 'u') {
                characters.append((char) Integer.parseInt(value.substring(i + 1, i + 5), 16));
                i += 4;
            } else {
                characters.append(known < 0 ? letter : "\b\f\n\r\t".charAt(known));
            }
        }
        return characters.toString();
    }

    private void all(char begin, char end, Runnable part) {
        try {
            expect(begin);
            if (peek() != end) {
                part.run();
                while (peek() == ',') {
                    at++;
                    part.run();
                }
            }
            expect(end);
        } catch (IndexOutOfBoundsException e) {
            throw new IllegalArgumentException("the JSON ends too soon", e);
        }
        if (!text.substring(at).isBlank()) {
            throw new IllegalArgumentException("something follows the JSON");
        }
    }

    private char peek() {
        while (" \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return text.charAt(at);
    }

    private void expect(char wanted) {
        if (peek() != wanted) {
            throw new IllegalArgumentException("no " + wanted + " at " + at + " of the JSON");
        }
        at++;
    }

    /** The text of a whole value, however deep it is. */
    private String value() {
        peek();
        int from = at;
        int depth = 0;
        do {
            char letter = text.charAt(at);
            if (letter == '"') {
                skipString();
                continue;
            }
            if (letter == '{' || letter == '[') {
                depth++;
            } else if (letter == '}' || letter == ']') {
                depth--;
            } else if (depth == 0) {
                while (at < text.length() && ",:]} \t\r\n".indexOf(text.charAt(at)) < 0) {
                    at++;
                }
                break;
            }
            at++;
        } while (depth > 0);
        if (at == from || depth < 0) {
            throw new IllegalArgumentException("no value at " + from + " of the JSON");
        }
        return text.substring(from, at);
    }

    private void skipString() {
        at++;
        while (text.charAt(at) != '"') {
            at += text.charAt(at) == '\\' ? 2 : 1;
        }
        at++;
    }
}
